// Command bench measures whole processes of this project and those of its peers, in turn and in one run, and prints the
// medians with the ratio pair by pair: go run ./hack/bench [-n RUNS] [-only PART].
//
// It measures Cluster API's own core tree, from its module, and publishing many files to a server with latency.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The parts of the benchmark.
const (
	partPublish = "publish"
	partBuild   = "build"
	partDump    = "dump"
	partLive    = "live"
	// partMachines and partPools are the provider's.
	partMachines = "machines"
	partPools    = "pools"
	partSlowHost = "slowhost"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == stopwatch {
		os.Exit(timeCommand(os.Args[2:]))
	}
	parts := []string{partPublish, partBuild, partDump, partLive, partMachines, partPools, partSlowHost}
	runs := flag.Int("n", 9, "counted runs of each side, after one that is not counted")
	only := flag.String("only", "", fmt.Sprintf("the one part to measure, of %v", parts))
	machines := flag.String("machines", "250,1000,4000", "how many machines are made in the part \""+partMachines+"\", one run after the other")
	pools := flag.String("pools", "250,1000,4000", "how many machines the pool has in the part \""+partPools+"\", one run after the other")
	onRest := flag.Int("slowhost", 1000, "how many machines are made on hosts that aren't slow in the part \""+partSlowHost+"\"")
	limit := flag.Duration("limit", 20*time.Minute, "how long each step of the parts that make machines may take; then the objects that aren't ready are shown")
	flag.Parse()
	machineSizes, machineErr := numbers("-machines", *machines)
	poolSizes, poolErr := numbers("-pools", *pools)
	if err := errors.Join(machineErr, poolErr); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(2)
	}
	if *only != "" {
		if !slices.Contains(parts, *only) {
			fmt.Fprintf(os.Stderr, "bench: -only %s: use one of %v\n", *only, parts)
			os.Exit(2)
		}
		parts = []string{*only}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx, *runs, parts, map[string][]trial{partMachines: machineTrials(machineSizes), partPools: poolTrials(poolSizes), partSlowHost: slowHostTrials(*onRest)}, *limit)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// numbers reads numbers with commas between them.
func numbers(flag, text string) ([]int, error) {
	var all []int
	for one := range strings.SplitSeq(text, ",") {
		number, err := strconv.Atoi(one)
		if err != nil || number < 1 {
			return nil, fmt.Errorf("%s: %q isn't a number of machines, as in 250,1000", flag, one)
		}
		all = append(all, number)
	}
	return all, nil
}

// comparison is one measurement on both sides: each side is commands that run one after the other.
type comparison struct {
	title, ours, peers string
	aim                float64
	our, peer          [][]string
	// environment contains additional variables for the peer's commands.
	environment []string
	// mayFail means that commands may end with another status than 0, as for broken releases.
	mayFail bool
	// runs is the number of counted runs; 0 is the number of the command line.
	runs int
	// before gives both sides the same start.
	before func() error
}

func bench(ctx context.Context, runs int, parts []string, trials map[string][]trial, limit time.Duration) error {
	work, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return fmt.Errorf("making a folder to work in: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	wanted := func(part string) bool { return slices.Contains(parts, part) }
	if wanted(partPublish) {
		if err := benchPublish(ctx, work, runs); err != nil {
			return err
		}
	}
	for _, part := range []string{partMachines, partPools, partSlowHost} {
		if !wanted(part) {
			continue
		}
		if err := benchMachines(ctx, work, trials[part], limit); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	if !wanted(partBuild) && !wanted(partDump) && !wanted(partLive) {
		return nil
	}
	comparisons, programs, err := prepare(ctx, work)
	if err != nil {
		return err
	}
	if wanted(partBuild) {
		for _, c := range comparisons {
			if err := c.run(ctx, work, runs); err != nil {
				return fmt.Errorf("%s: %w", c.title, err)
			}
		}
	}
	if wanted(partDump) {
		if err := planOfDumps(ctx, programs.tool, programs.module, work, runs); err != nil {
			return fmt.Errorf("plans of dumps: %w", err)
		}
	}
	if wanted(partLive) {
		if err := planOfLive(ctx, programs.tool, programs.clusterctl, programs.module, work, runs); err != nil {
			return fmt.Errorf("plans of live namespaces: %w", err)
		}
	}
	return nil
}

// built contains the paths of the programs, and of Cluster API's module.
type built struct{ tool, clusterctl, module string }

// prepare builds the programs, copies the tree, and returns the comparisons.
func prepare(ctx context.Context, work string) ([]comparison, built, error) {
	tool := filepath.Join(work, "clusterctl-release")
	if _, err := output(ctx, "", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", tool, "./cmd/clusterctl-release"); err != nil {
		return nil, built{}, err
	}
	kustomize, err := output(ctx, "", "hack/tools/tool", "kustomize")
	if err != nil {
		return nil, built{}, err
	}
	clusterctl, err := output(ctx, "", "hack/tools/tool", "clusterctl")
	if err != nil {
		return nil, built{}, err
	}
	module, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	if err != nil {
		return nil, built{}, err
	}
	source := filepath.Join(work, "cluster-api")
	if err := os.CopyFS(filepath.Join(source, "core", "config"), os.DirFS(filepath.Join(module, "core", "config"))); err != nil {
		return nil, built{}, fmt.Errorf("copying Cluster API's tree: %w", err)
	}
	if _, err := output(ctx, "", "cp", filepath.Join(module, "metadata.yaml"), source); err != nil {
		return nil, built{}, err
	}
	if _, err := output(ctx, source, tool, "init"); err != nil {
		return nil, built{}, err
	}
	const version = "v1.14.2"
	released, repository := filepath.Join(work, "release"), filepath.Join(work, "repository")
	peerRepository := filepath.Join(work, "peer")
	components := filepath.Join(peerRepository, "cluster-api", version, "core-components.yaml")
	if err := layOutPeer(peerRepository, components, filepath.Join(source, "metadata.yaml")); err != nil {
		return nil, built{}, err
	}
	build := []string{tool, "build", "--version", version, "--config", filepath.Join(source, "clusterctl-release.yaml"), "--output", released}
	kustomizeBuild := []string{kustomize, "build", filepath.Join(source, "core", "config", "default"), "-o", components}
	comparisons := []comparison{
		{
			title: "build of Cluster API's core tree", ours: "clusterctl-release build", peers: "kustomize build", aim: 1.3,
			our: [][]string{build}, peer: [][]string{kustomizeBuild},
			before: func() error { return os.RemoveAll(released) },
		},
		{
			title: "from the tree to what clusterctl has read", ours: "build + publish, with read back", peers: "kustomize build + clusterctl generate provider", aim: 1.0,
			our: [][]string{build, {tool, "publish", filepath.Join(released, "cluster-api", version), "--to", repository}},
			peer: [][]string{kustomizeBuild, {
				clusterctl, "generate", "provider", "--config", filepath.Join(peerRepository, "clusterctl.yaml"), "--core", "cluster-api:" + version,
			}},
			before: func() error {
				if err := os.RemoveAll(released); err != nil {
					return err
				}
				return os.RemoveAll(repository)
			},
		},
	}
	corpus, err := checkOfCorpus(tool, clusterctl, work)
	if err != nil {
		return nil, built{}, err
	}
	return append(comparisons, corpus...), built{tool: tool, clusterctl: clusterctl, module: module}, nil
}

// layOutPeer creates the local repository from which clusterctl reads the result of kustomize.
func layOutPeer(repository, components, metadata string) error {
	if err := os.MkdirAll(filepath.Dir(components), 0o750); err != nil {
		return err
	}
	data, err := os.ReadFile(metadata)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(components), "metadata.yaml"), data, 0o600); err != nil {
		return err
	}
	config := fmt.Sprintf("providers:\n- name: cluster-api\n  type: CoreProvider\n  url: %s\n", components)
	return os.WriteFile(filepath.Join(repository, "clusterctl.yaml"), []byte(config), 0o600)
}

// run measures both sides in turn and prints a table.
func (c comparison) run(ctx context.Context, work string, runs int) error {
	var ours, peers []usage
	if c.runs > 0 {
		runs = c.runs
	}
	for i := range runs + 1 {
		if err := c.before(); err != nil {
			return err
		}
		our, err := c.measure(ctx, work, c.our)
		if err != nil {
			return err
		}
		peer, err := c.measure(ctx, work, c.peer)
		if err != nil {
			return err
		}
		if i > 0 { // the first warms the caches
			ours, peers = append(ours, our), append(peers, peer)
		}
	}
	var wallRatios, peakRatios []float64
	for i := range ours {
		wallRatios = append(wallRatios, ours[i].Wall.Seconds()/peers[i].Wall.Seconds())
		peakRatios = append(peakRatios, ours[i].Peak/peers[i].Peak)
	}
	fmt.Printf("%s (%d runs each, in turn; medians)\n", c.title, runs)
	fmt.Printf("  %-48s %7.3f s  %6.1f MiB\n", c.ours, median(ours, func(u usage) float64 { return u.Wall.Seconds() }), median(ours, func(u usage) float64 { return u.Peak }))
	fmt.Printf("  %-48s %7.3f s  %6.1f MiB\n", c.peers, median(peers, func(u usage) float64 { return u.Wall.Seconds() }), median(peers, func(u usage) float64 { return u.Peak }))
	itself := func(f float64) float64 { return f }
	fmt.Printf("  %-48s %7.2f    %6.2f      aim: at most %.2f of the time\n\n", "ratio, pair by pair", median(wallRatios, itself), median(peakRatios, itself), c.aim)
	return nil
}

// median returns the median of the values of the items.
func median[T any](items []T, value func(T) float64) float64 {
	values := make([]float64, 0, len(items))
	for _, item := range items {
		values = append(values, value(item))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// output runs a program in a folder and returns its output, without the final line break.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
