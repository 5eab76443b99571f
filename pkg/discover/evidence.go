package discover

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// step is one command of a build file that creates a file from another one.
type step struct {
	// place is the command's file and line.
	place string
	// source is a pattern of files of the tree, or the folder of a kustomization. Here and in target, unknownMark + its
	// name + unknownMark replaces a variable without a known value.
	source string
	// kustomize means that source is a kustomization that is built.
	kustomize bool
	// target is the file or folder that is written.
	target string
	// use is the use of the result.
	use use
}

// use is the use of a step's result, as far as the names around it show.
type use int

const (
	forTests use = iota
	unclear
	forReleases
)

// asset is a file that the build files create: a file of the tree, or the result of a kustomization.
type asset struct {
	// name is the name of the created file.
	name string
	// file is the file of the tree, or "".
	file string
	// kustomize is the folder of the kustomization if there is no such file.
	kustomize string
	// place is the file and line of the command.
	place string
	use   use
}

// source returns the source file or folder of the asset.
func (a asset) source() string { return a.file + a.kustomize }

// evidence is the information in the build files of a tree about its releases.
type evidence struct {
	scan  *scanned
	steps []step
	// resolved are the assets of the steps, by their index; nil while a step is being resolved.
	resolved map[int][]asset
}

// readEvidence reads the build files of a tree. It skips files that can't be read: a tree may contain links to files
// elsewhere.
func readEvidence(t *tree.Tree, s *scanned) *evidence {
	texts := map[string][]byte{}
	makeVariables := variables{}
	for _, name := range s.buildFiles {
		data, err := t.ReadFile(name)
		if err != nil || len(data) > maxBuildFile {
			continue
		}
		texts[name] = data
		if isMakefile(name) {
			makeVariables.collect(data)
		}
	}
	e := &evidence{scan: s, resolved: map[int][]asset{}}
	for _, name := range s.buildFiles {
		known := makeVariables
		if !isMakefile(name) {
			known = variables{}
			known.collect(texts[name])
		}
		e.steps = append(e.steps, readSteps(name, texts[name], known)...)
	}
	return e
}

// maxBuildFile is the size limit for build files, in bytes.
const maxBuildFile = 1 << 20

// released returns the files with a fitting name that the build files put into a release, one for each name and source.
// If no command is known to create a release, it returns those of commands with an unclear use.
func (e *evidence) released(fits func(name string) bool) []asset {
	var assets []asset
	best := unclear
	for i, s := range e.steps {
		if s.use == forTests {
			continue
		}
		for _, a := range e.resolve(i) {
			same := func(other asset) bool {
				return other.name == a.name && other.source() == a.source() && other.use >= a.use
			}
			if fits(a.name) && !slices.ContainsFunc(assets, same) {
				assets = append(assets, a)
				best = max(best, a.use)
			}
		}
	}
	return slices.DeleteFunc(assets, func(a asset) bool { return a.use < best })
}

// resolve returns the files that a step creates from files of the tree, or from results of other steps.
func (e *evidence) resolve(index int) []asset {
	if assets, ok := e.resolved[index]; ok {
		return assets
	}
	e.resolved[index] = nil // for cyclic steps
	s := e.steps[index]
	var assets []asset
	add := func(source string, values map[string]string, a asset) {
		a.name, a.use, a.place = s.nameOf(source, values), s.use, cmp.Or(a.place, s.place)
		if a.name != "" {
			assets = append(assets, a)
		}
	}
	pattern, ok := patternOf(s.source)
	switch {
	case !ok:
		return nil
	case s.kustomize:
		for _, m := range e.scan.match(s.source, e.scan.folders()) {
			add("", m.values, asset{kustomize: m.path})
		}
	default:
		existing := matches(pattern, e.scan.all)
		for _, m := range existing {
			add(m.path, m.values, asset{file: m.path})
		}
		for other := range e.steps {
			if other == index || !e.steps[other].mayMake(s.source) {
				continue
			}
			for _, a := range e.resolve(other) {
				output := path.Join(withoutRoot(e.steps[other].folder()), a.name)
				m, fits := matchOne(pattern, output)
				if fits && !slices.ContainsFunc(existing, func(m match) bool { return m.path == output }) {
					add(output, m.values, a)
				}
			}
		}
		if len(assets) == 0 {
			for _, m := range e.scan.match(s.source, e.scan.all) {
				add(m.path, m.values, asset{file: m.path})
			}
		}
	}
	e.resolved[index] = assets
	return assets
}

// mayMake reports whether a step writes to the folder of another one's source.
func (s step) mayMake(source string) bool {
	return s.target != "" && withoutRoot(s.folder()) == withoutRoot(path.Dir(path.Clean(source)))
}

// withoutRoot returns a path without the variables that lead to the tree's root.
func withoutRoot(name string) string {
	parts := strings.Split(path.Clean(name), "/")
	for len(parts) > 1 && (parts[0] == "" || isUnknown(parts[0])) {
		parts = parts[1:]
	}
	return strings.Join(parts, "/")
}

// isFolder reports whether a step's target is a folder, as far as its name shows.
func (s step) isFolder() bool {
	return s.target == "" || strings.HasSuffix(s.target, "/") || !strings.Contains(path.Base(s.target), ".") || path.Base(s.target) == "."
}

// folder returns the folder that a step writes to.
func (s step) folder() string {
	if s.isFolder() {
		return path.Clean(s.target)
	}
	return path.Dir(path.Clean(s.target))
}

// nameOf returns the name of the file that a step creates from a source, or "" if it is not known.
func (s step) nameOf(source string, values map[string]string) string {
	if s.isFolder() {
		if source == "" {
			return ""
		}
		return path.Base(source)
	}
	name := path.Base(s.target)
	for variable, value := range values {
		name = strings.ReplaceAll(name, unknown(variable), value)
	}
	if strings.Contains(name, unknownMark) {
		return ""
	}
	return name
}

// match is a path of the tree that matches a pattern, with the values of its unknown variables.
type match struct {
	path   string
	values map[string]string
}

// patternPart is a piece of a path that isn't a literal text.
var patternPart = regexp.MustCompile(unknownMark + `[^` + unknownMark + `]*` + unknownMark + `|\*+|\?`)

// patternOf returns a pattern of shell and unknown variables as a regular expression, without the variables for the
// tree's root. It returns false for a path outside of the tree, and for a path of which nothing is known.
func patternOf(source string) (*regexp.Regexp, bool) {
	return expressionOf(strings.Split(withoutRoot(source), "/"))
}

// expressionOf is patternOf for the segments of a path.
func expressionOf(parts []string) (*regexp.Regexp, bool) {
	text := strings.Join(parts, "/")
	if parts[0] == ".." || strings.Trim(patternPart.ReplaceAllString(text, ""), "/.") == "" && text != "." {
		return nil, false
	}
	var expression strings.Builder
	expression.WriteString("^")
	end := 0
	named := map[string]bool{}
	for _, at := range patternPart.FindAllStringIndex(text, -1) {
		expression.WriteString(regexp.QuoteMeta(text[end:at[0]]))
		end = at[1]
		name := strings.Trim(text[at[0]:at[1]], unknownMark)
		switch {
		case name == "?":
			expression.WriteString(`[^/]`)
		case strings.HasPrefix(name, "*"):
			expression.WriteString(`[^/]*`)
		case variableName.MatchString(name) && !named[name]:
			named[name] = true
			expression.WriteString("(?P<" + name + ">[^/]+)")
		default:
			expression.WriteString(`[^/]+`)
		}
	}
	expression.WriteString(regexp.QuoteMeta(text[end:]) + "$")
	pattern, err := regexp.Compile(expression.String())
	return pattern, err == nil
}

// matchOne matches one path.
func matchOne(pattern *regexp.Regexp, name string) (match, bool) {
	groups := pattern.FindStringSubmatch(name)
	if groups == nil {
		return match{}, false
	}
	m := match{path: name, values: map[string]string{}}
	for i, group := range pattern.SubexpNames() {
		if group != "" {
			m.values[group] = groups[i]
		}
	}
	return m, true
}

// matches returns the paths that match a pattern.
func matches(pattern *regexp.Regexp, paths []string) []match {
	var all []match
	for _, name := range paths {
		if m, ok := matchOne(pattern, name); ok {
			all = append(all, m)
		}
	}
	return all
}

// match returns the paths that match a pattern. If none does, because the build first copies the tree to another
// folder, it removes leading folders that are not in the tree.
func (s *scanned) match(source string, paths []string) []match {
	pattern, ok := patternOf(source)
	if !ok {
		return nil
	}
	if matching := matches(pattern, paths); len(matching) > 0 {
		return matching
	}
	parts := strings.Split(path.Clean(source), "/")
	for len(parts) > 1 && !s.hasFolder(parts[0]) {
		parts = parts[1:]
		if strings.Contains(parts[0], unknownMark) || strings.HasPrefix(parts[0], "*") {
			continue
		}
		if pattern, ok := expressionOf(parts); ok {
			if matching := matches(pattern, paths); len(matching) > 0 {
				return matching
			}
		}
	}
	return nil
}

// hasFolder reports whether a folder contains files of the tree.
func (s *scanned) hasFolder(dir string) bool {
	return slices.ContainsFunc(s.all, func(file string) bool { return strings.HasPrefix(file, dir+"/") })
}

// folders returns the folders with a kustomization, in order.
func (s *scanned) folders() []string {
	return slices.Sorted(maps.Keys(s.kustomizations))
}

// isComponents reports whether a file has the name of a provider's components YAML.
func isComponents(name string) bool { return typeByFile(name) != "" }

// placed returns the places in build files, for messages.
func placed(assets []asset) string {
	var places []string
	for _, a := range assets {
		if !slices.Contains(places, a.place) {
			places = append(places, a.place)
		}
	}
	return listed(places, 1)
}
