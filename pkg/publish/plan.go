package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Plan is what a Publish would change.
type Plan struct {
	// Target is the place of publication.
	Target string
	// Releases are in the given order, without duplicates.
	Releases []ReleasePlan
	// Config is the change to the repository's clusterctl.yaml; nil if the target has none.
	Config *ConfigPlan
	// Pages are releases for people, which clusterctl does not read; empty if the target has none.
	Pages []store.Page
	// Warnings are problems at the place that affect its users, whatever their origin.
	Warnings []string
}

// ReleasePlan is the plan for one release.
type ReleasePlan struct {
	Release *release.Release
	// Place is the place of the release: a folder or a URL.
	Place string
	// Action is Create, Unchanged, Replace or Refused.
	Action store.Action
	// Details describe the changes on the server other than files, such as a tag, a line each.
	Details []string
	// Differences compare the published release (first) with the new one (second), for Replace and Refused.
	Differences []release.Difference
	// Err is the reason for refusing the release.
	Err error
}

// decide sets the action for the release, given whether a different release is in its place.
func (p *ReleasePlan) decide(isThere, replace, immutable bool) {
	replaceable := store.Replaceable(p.Release.Version)
	switch {
	case !isThere:
		p.Action, p.Differences = store.Create, nil
	case len(p.Differences) == 0:
		p.Action = store.Unchanged
	case replace && replaceable && !immutable:
		p.Action = store.Replace
	default:
		p.Action = store.Refused
		p.Err = &ConflictError{
			Provider: p.Release.Provider, Version: p.Release.Version, Place: p.Place, Differences: p.Differences,
			Replaceable: replaceable && !immutable, Immutable: replaceable && immutable,
		}
	}
}

// ConfigPlan is the plan for the clusterctl.yaml at a repository's root.
type ConfigPlan struct {
	// Path is the file.
	Path string
	// Action is Create, Update or Unchanged.
	Action store.Action
	// Entries describe the changes to its list of providers, e.g. "add libvirt (InfrastructureProvider)".
	Entries []string

	// text and mode are those of the new file.
	text []byte
	mode fs.FileMode
}

// Err returns the joined reasons for refused releases, or nil.
func (p *Plan) Err() error {
	var refused []error
	for _, r := range p.Releases {
		if r.Err != nil {
			refused = append(refused, r.Err)
		}
	}
	return errors.Join(refused...)
}

// Changes reports whether Publish would change anything.
func (p *Plan) Changes() bool {
	for _, r := range p.Releases {
		if r.Action != store.Unchanged {
			return true
		}
	}
	for _, page := range p.Pages {
		if page.Action != store.Unchanged {
			return true
		}
	}
	return p.changesConfig()
}

func (p *Plan) changesConfig() bool { return p.Config != nil && p.Config.Action != store.Unchanged }

// String returns the plan as text for people.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "to %s\n", p.Target)
	for _, r := range p.Releases {
		fmt.Fprintf(&b, "  %-9s  %s, %s\n", r.Action, r.Release, count(len(r.Release.Files), "file"))
		for _, detail := range r.Details {
			fmt.Fprintf(&b, "             %s\n", detail)
		}
		for _, d := range r.Differences {
			fmt.Fprintf(&b, "             %s\n", d.File+comparedWithNew[d.Kind])
		}
		if r.Err != nil && len(r.Differences) == 0 {
			fmt.Fprintf(&b, "             %v\n", r.Err)
		}
	}
	if p.Config != nil {
		fmt.Fprintf(&b, "  %-9s  %s\n", p.Config.Action, configFile)
		for _, entry := range p.Config.Entries {
			fmt.Fprintf(&b, "             %s\n", entry)
		}
	}
	for _, page := range p.Pages {
		fmt.Fprintf(&b, "  %-9s  %s, %s\n", page.Action, page.Place, count(len(page.Links), "link"))
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(&b, "  warning: %s\n", warning)
	}
	return b.String()
}

// Result is the result of a Publish.
type Result struct {
	// Plan is the plan that was made under the repository's lock, and carried out.
	Plan
	// Commands are the clusterctl commands that use the releases, one line of shell each.
	Commands []string
	// Entry is the entry that a user's clusterctl.yaml needs for these commands; empty if none is needed.
	Entry string
	// Usage describes how other programs than clusterctl read the releases; empty if none does.
	Usage string
}

// String returns the result, and how to use it, as text for people.
func (r *Result) String() string {
	var b strings.Builder
	done := map[store.Action]string{
		store.Create: "published", store.Update: "updated", store.Replace: "replaced", store.Unchanged: "unchanged",
	}
	for _, one := range r.Releases {
		fmt.Fprintf(&b, "%s %s in %s\n", done[one.Action], one.Release, one.Place)
	}
	if r.changesConfig() {
		verb := done[r.Config.Action]
		if r.Config.Action == store.Create {
			verb = "wrote"
		}
		fmt.Fprintf(&b, "%s %s: %s\n", verb, r.Config.Path, strings.Join(r.Config.Entries, ", "))
	}
	for _, page := range r.Pages {
		if page.Action != store.Unchanged {
			fmt.Fprintf(&b, "%s %s\n", done[page.Action], page.Place)
		}
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", warning)
	}
	if r.Entry != "" {
		fmt.Fprintf(&b, "for clusterctl.yaml:\n  %s\n", strings.ReplaceAll(strings.TrimSpace(r.Entry), "\n", "\n  "))
	}
	b.WriteString(r.Usage)
	if len(r.Commands) > 0 {
		b.WriteString("to use it:\n")
	}
	for _, command := range r.Commands {
		fmt.Fprintf(&b, "  %s\n", command)
	}
	return b.String()
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// clusterctlCommands returns the commands that use the releases: for each one that prints the components, then one that
// installs all releases, then one for each cluster template. config is the configuration of the repository; empty means
// the user's own.
func clusterctlCommands(config string, releases []*release.Release) []string {
	clusterctl := "clusterctl"
	if config != "" {
		clusterctl += " --config " + shellQuote(config)
	}
	var commands []string
	add := func(args ...string) {
		line := clusterctl
		for _, arg := range args {
			line += " " + shellQuote(arg)
		}
		commands = append(commands, line)
	}
	install := []string{"init"}
	for _, r := range releases {
		selector := []string{"--" + r.Provider.ClusterctlFlag(), r.Provider.Name + ":" + r.Version}
		add(append([]string{"generate", "provider"}, selector...)...)
		if store.Newest(releases, r) {
			install = append(install, selector...)
		}
	}
	add(install...)
	for _, r := range releases {
		// clusterctl looks for templates in infrastructure providers only.
		if r.Provider.Type != clusterctlv1.InfrastructureProviderType || !store.Newest(releases, r) {
			continue
		}
		for _, f := range r.Files {
			flavor, err := release.Flavor(f.Name)
			if err != nil {
				continue
			}
			args := []string{"generate", "cluster", "my-cluster", "--infrastructure", r.Provider.Name + ":" + r.Version}
			if flavor != "" {
				args = append(args, "--flavor", flavor)
			}
			add(args...)
		}
	}
	return commands
}

// plainWord matches a word that a POSIX shell does not interpret.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=+@,-]+$`)

// shellQuote quotes a word that a shell would interpret.
func shellQuote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// plan returns the changes that publishing versions would make. Its first warnings are the given ones.
func (s *server) plan(ctx context.Context, all []*store.Version, warnings []string) (*Plan, error) {
	s.opts.tell("looking at " + s.store.URL())
	surveyed, err := s.store.Survey(ctx, all)
	if err != nil {
		return nil, err
	}
	plan := &Plan{Target: s.store.URL(), Warnings: append(warnings, surveyed...)}
	for _, v := range all {
		there, err := s.store.Look(ctx, v.Number)
		if err != nil {
			return nil, err
		}
		plans, err := s.compare(ctx, v, there)
		if err != nil {
			return nil, err
		}
		plan.Warnings = append(plan.Warnings, there.Warnings...)
		for _, problem := range doubles(v.Number, there) {
			plan.Warnings = append(plan.Warnings, problem.Error())
		}
		if plans[0].Action == store.Create || plans[0].Action == store.Replace {
			if plans[0].Details, err = s.store.Aim(ctx, v, there); err != nil {
				return nil, err
			}
		}
		plan.Releases = append(plan.Releases, plans...)
		pages, err := s.page(ctx, v, nil)
		if err != nil {
			return nil, err
		}
		plan.Pages = append(plan.Pages, pages...)
	}
	return plan, nil
}

// doubles reports that a version is public more than once.
func doubles(version string, there *store.Snapshot) []error {
	if len(there.Doubles) == 0 {
		return nil
	}
	return []error{fmt.Errorf("%s is public more than once, and users get one or the other: compare them and remove all but one: %s", version, strings.Join(there.Doubles, ", "))}
}

// compare determines the actions for a version. An incomplete version that is claimed with the same bytes was started
// by an earlier run.
func (s *server) compare(ctx context.Context, v *store.Version, there *store.Snapshot) ([]ReleasePlan, error) {
	own := there.Claim != "" && there.Claim == release.Digest(v.Checksums().Data)
	if !there.Public && !there.Begun || own && !there.Complete {
		return s.plans(v, there, false, nil), nil
	}
	var differences []release.Difference
	known := map[string]bool{}
	for i, f := range slices.Concat(v.Files, s.aliases(v)) {
		known[f.Name] = true
		listed, ok := there.Files[f.Name]
		if !ok {
			if i < len(v.Files) { // an alias may be newer than the version
				differences = append(differences, release.Difference{File: f.Name, Kind: "extra"})
			}
			continue
		}
		same, err := s.same(ctx, there, listed, f)
		if err != nil {
			return nil, err
		}
		if !same {
			differences = append(differences, release.Difference{File: f.Name, Kind: "differs"})
		}
	}
	for name := range there.Files {
		if !known[name] && v.Reads(name) { // other files, such as binaries, come from other programs
			differences = append(differences, release.Difference{File: name, Kind: "missing"})
		}
	}
	return s.plans(v, there, !own || len(differences) == 0, differences), nil
}

// aliases returns the files of a version under further names, if the store has such.
func (s *server) aliases(v *store.Version) []release.File {
	a, ok := s.store.(store.Aliaser)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(a.Aliases(v), func(f release.File) bool { _, own := v.File(f.Name); return own })
}

// same reports whether a file has these bytes: by its digest, or, without one, by reading it.
func (s *server) same(ctx context.Context, there *store.Snapshot, listed store.File, f release.File) (bool, error) {
	if listed.Size >= 0 && listed.Size != int64(len(f.Data)) {
		return false, nil
	}
	if listed.SHA256 != "" {
		return strings.EqualFold(listed.SHA256, release.Digest(f.Data)), nil
	}
	data, err := s.store.Read(ctx, there, f.Name)
	return err == nil && bytes.Equal(data, f.Data), err
}

// plans returns the plan for each release of a version, given whether another version is in its place, and the
// differences from it.
func (s *server) plans(v *store.Version, there *store.Snapshot, another bool, differences []release.Difference) []ReleasePlan {
	slices.SortFunc(differences, func(x, y release.Difference) int { return strings.Compare(x.File, y.File) })
	plans := make([]ReleasePlan, 0, len(v.Releases))
	for _, r := range v.Releases {
		plan := ReleasePlan{Release: r, Place: s.store.Place(v.Number), Differences: differences}
		plan.decide(another, s.opts.Replace, there.Immutable)
		if plan.Err != nil && there.Hint != "" {
			plan.Err = fmt.Errorf("%w; %s", plan.Err, there.Hint)
		}
		plans = append(plans, plan)
	}
	return plans
}
