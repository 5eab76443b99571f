package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/pkg/move"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// sourceFlags select the source of the owner references.
type sourceFlags struct {
	render     renderFlags
	with       []string
	live       bool
	kubeconfig string
	context    string
	namespace  string
}

func addSourceFlags(cmd *cobra.Command, flags *sourceFlags) {
	addRenderFlags(cmd, &flags.render)
	cmd.Flags().StringArrayVar(&flags.with, "with", nil, "release of another provider whose kinds the templates use (repeat for more)")
	addLiveFlags(cmd, flags)
}

// addLiveFlags adds the flags that select a cluster and a namespace.
func addLiveFlags(cmd *cobra.Command, flags *sourceFlags) {
	cmd.Flags().BoolVar(&flags.live, "live", false, "read a management cluster")
	cmd.Flags().StringVar(&flags.kubeconfig, "kubeconfig", "", "with --live: the kubeconfig (default: that of kubectl)")
	cmd.Flags().StringVar(&flags.context, "context", "", "with --live: the context of the kubeconfig (default: the current one)")
	cmd.Flags().StringVar(&flags.namespace, "namespace", "", "with --live or a dump: namespace to move (default: that of the context, or the only one with Clusters)")
}

// readWorld reads the source that the arguments and flags name, and returns the namespace to move.
func readWorld(cmd *cobra.Command, args []string, flags sourceFlags, whole bool) (*move.World, string, error) {
	ctx := cmd.Context()
	boundMemory(heapOfWorlds)
	switch {
	case flags.live && len(args) > 0:
		return nil, "", &usageError{err: errors.New("--live reads no SOURCE: remove one of them")}
	case flags.live:
		config, namespace, err := move.Connect(flags.kubeconfig, flags.context)
		if err != nil {
			return nil, "", err
		}
		namespace = cmp.Or(flags.namespace, namespace)
		world, err := move.Live(ctx, config, namespace, whole)
		return world, namespace, err
	case len(args) == 0:
		return nil, "", withHelp(cmd, errors.New("name a dump or a release, or use --live"))
	case flags.kubeconfig != "" || flags.context != "":
		return nil, "", &usageError{err: errors.New("--kubeconfig and --context are for --live")}
	}
	world, err := readSource(cmd, args[0], flags, whole)
	if err != nil {
		return nil, "", err
	}
	namespace, err := meantNamespace(world, flags.namespace)
	return world, namespace, err
}

// readSource reads a release or, if the location is none, a dump.
func readSource(cmd *cobra.Command, location string, flags sourceFlags, whole bool) (*move.World, error) {
	releases, err := readReleases(cmd, []string{location})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is neither a dump nor a release: %w", location, err)
	}
	var target *publish.TargetError
	isRelease := err == nil || flags.render.flavor != "" || len(flags.render.set) > 0 || flags.render.values != "" || flags.render.env
	if !isRelease && (errors.Is(err, release.ErrNoRelease) || errors.As(err, &target) || isDump(location)) {
		return move.Dump(cmd.Context(), whole, location)
	}
	if err != nil {
		return nil, err
	}
	r, err := onlyRelease(location, releases)
	if err != nil {
		return nil, err
	}
	with, err := readReleases(cmd, flags.with)
	if err != nil {
		return nil, fmt.Errorf("--with: %w", err)
	}
	choice, err := templateOf(cmd, r, flags.render, with)
	if err != nil {
		return nil, err
	}
	world, err := move.Rendered(cmd.Context(), choice.release, choice.flavor, choice.values, with...)
	if err != nil {
		return nil, fmt.Errorf("rendering %s of %s: %w", choice.file.Name, choice.release, err)
	}
	if len(choice.generated) > 0 {
		world.Assumptions = append(world.Assumptions, "variables without a value have generated ones: "+strings.Join(choice.generated, ", "))
	}
	return world, nil
}

// isDump reports whether a path is a file, which a release never is.
func isDump(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// meantNamespace returns the namespace to move: the one that the user named, or the only candidate.
func meantNamespace(world *move.World, asked string) (string, error) {
	found := world.Namespaces()
	if asked != "" {
		for _, o := range world.Objects {
			if o.Namespace == asked {
				return asked, nil
			}
		}
		return "", &usageError{err: fmt.Errorf("%s has no objects in the namespace %s: it has %s", world.Source, asked, namespacesText(found))}
	}
	switch len(found) {
	case 0:
		problems := ""
		for _, p := range world.Problems {
			problems += "\n  " + p.String()
		}
		return "", fmt.Errorf("%s has no Clusters and no objects of providers%s", world.Source, problems)
	case 1:
		return found[0].Name, nil
	}
	return "", fmt.Errorf("%s has several namespaces, and a move takes one: set --namespace to one of %s", world.Source, namespacesText(found))
}

// namespacesText lists namespaces with the numbers of their objects.
func namespacesText(found []move.NamespaceCount) string {
	texts := make([]string, 0, len(found))
	for _, n := range found {
		texts = append(texts, fmt.Sprintf("%s (Clusters: %d, objects: %d)", n.Name, n.Clusters, n.Objects))
	}
	if len(texts) == 0 {
		return "none with objects of Cluster API"
	}
	return strings.Join(texts, ", ")
}
