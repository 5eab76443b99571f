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

// Action is what happens to a release or to a file.
type Action = store.Action

// The actions of a plan.
const (
	Create    = store.Create
	Update    = store.Update
	Replace   = store.Replace
	Unchanged = store.Unchanged
	Refused   = store.Refused
)

// Plan is what a Publish would change.
type Plan struct {
	// Target is the place that is published to.
	Target string
	// Releases are in the order in which they were given; a release given twice is there once.
	Releases []ReleasePlan
	// Config is the change to the repository's clusterctl.yaml; nil where the target has none.
	Config *ConfigPlan
	// Pages are releases for people, apart from what clusterctl reads; empty where the target has none.
	Pages []store.Page
	// Warnings are what was seen at the place that bites its users, whoever put it there.
	Warnings []string
}

// ReleasePlan is what would happen to one release.
type ReleasePlan struct {
	Release *release.Release
	// Place is where the release is published: a folder or a URL.
	Place string
	// Action is Create, Unchanged, Replace or Refused.
	Action Action
	// Details say what publishing changes on the server apart from the files, such as a tag, a line each.
	Details []string
	// Differences compare what is published (first) with the release (second), for Replace and Refused.
	Differences []release.Difference
	// Err says why the release is refused.
	Err error
}

// decide says what becomes of the release where another one, which differs so, is in its place or not.
func (p *ReleasePlan) decide(isThere, replace, immutable bool) {
	replaceable := store.Replaceable(p.Release.Version)
	switch {
	case !isThere:
		p.Action, p.Differences = Create, nil
	case len(p.Differences) == 0:
		p.Action = Unchanged
	case replace && replaceable && !immutable:
		p.Action = Replace
	default:
		p.Action = Refused
		p.Err = &ConflictError{
			Provider: p.Release.Provider, Version: p.Release.Version, Place: p.Place, Differences: p.Differences,
			Replaceable: replaceable && !immutable, Immutable: replaceable && immutable,
		}
	}
}

// ConfigPlan is what would happen to the clusterctl.yaml at a repository's root.
type ConfigPlan struct {
	// Path is the file.
	Path string
	// Action is Create, Update or Unchanged.
	Action Action
	// Entries are the entries of its list of providers that change, e.g. "add libvirt (InfrastructureProvider)".
	Entries []string

	// text and mode are what the file will have.
	text []byte
	mode fs.FileMode
}

// Err returns why releases are refused, all of them together, or nil.
func (p *Plan) Err() error {
	var refused []error
	for _, r := range p.Releases {
		if r.Err != nil {
			refused = append(refused, r.Err)
		}
	}
	return errors.Join(refused...)
}

// Changes says whether Publish would change anything.
func (p *Plan) Changes() bool {
	for _, r := range p.Releases {
		if r.Action != Unchanged {
			return true
		}
	}
	for _, page := range p.Pages {
		if page.Action != Unchanged {
			return true
		}
	}
	return p.changesConfig()
}

func (p *Plan) changesConfig() bool { return p.Config != nil && p.Config.Action != Unchanged }

// String returns the plan as text for a person.
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

// Result is what a Publish did.
type Result struct {
	// Plan is what was found under the repository's lock, and has been done.
	Plan
	// Commands are the clusterctl commands that use the releases, one a line of shell each.
	Commands []string
	// Entry is what a user's clusterctl.yaml needs before these commands work; empty where it needs nothing.
	Entry string
	// Usage says how something other than clusterctl reads the releases; empty where nothing does.
	Usage string
}

// String returns what was done and how to use it as text for a person.
func (r *Result) String() string {
	var b strings.Builder
	done := map[Action]string{Create: "published", Update: "updated", Replace: "replaced", Unchanged: "unchanged"}
	for _, one := range r.Releases {
		fmt.Fprintf(&b, "%s %s in %s\n", done[one.Action], one.Release, one.Place)
	}
	if r.changesConfig() {
		verb := done[r.Config.Action]
		if r.Config.Action == Create {
			verb = "wrote"
		}
		fmt.Fprintf(&b, "%s %s: %s\n", verb, r.Config.Path, strings.Join(r.Config.Entries, ", "))
	}
	for _, page := range r.Pages {
		if page.Action != Unchanged {
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

// clusterctlCommands returns the commands that use the releases: for each what clusterctl would
// apply, then one that installs them all, then one for each cluster template. The configuration is
// that of the repository; empty stands for the user's own.
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

// plainWord is a word that a POSIX shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=+@,-]+$`)

// shellQuote quotes a word where a shell would take it for something else.
func shellQuote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// plan returns what publishing versions would change. The warnings come first in it.
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
		if plans[0].Action == Create || plans[0].Action == Replace {
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

// doubles says that a version is public more than once.
func doubles(version string, there *store.Snapshot) []error {
	if len(there.Doubles) == 0 {
		return nil
	}
	return []error{fmt.Errorf("%s is public more than once, and users get one or the other: compare them and remove all but one: %s", version, strings.Join(there.Doubles, ", "))}
}

// compare says what is to be done about a version. One that is not complete and claimed with the same
// bytes is one that a run before this one began.
func (s *server) compare(ctx context.Context, v *store.Version, there *store.Snapshot) ([]ReleasePlan, error) {
	own := there.Claim != "" && there.Claim == store.Digest(v.Checksums().Data)
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
		if !known[name] && v.Reads(name) { // others, such as binaries, come from elsewhere and bother nobody
			differences = append(differences, release.Difference{File: name, Kind: "missing"})
		}
	}
	return s.plans(v, there, !own || len(differences) == 0, differences), nil
}

// aliases returns the files of a version under further names, where the store has such.
func (s *server) aliases(v *store.Version) []release.File {
	a, ok := s.store.(store.Aliaser)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(a.Aliases(v), func(f release.File) bool { _, own := v.File(f.Name); return own })
}

// same says whether a file has these bytes: by its digest, or, where there is none, by reading it.
func (s *server) same(ctx context.Context, there *store.Snapshot, listed store.File, f release.File) (bool, error) {
	if listed.Size >= 0 && listed.Size != int64(len(f.Data)) {
		return false, nil
	}
	if listed.SHA256 != "" {
		return strings.EqualFold(listed.SHA256, store.Digest(f.Data)), nil
	}
	data, err := s.store.Read(ctx, there, f.Name)
	return err == nil && bytes.Equal(data, f.Data), err
}

// plans returns the plan for each release of a version, by whether another one is there, and how the
// whole version differs from that.
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
