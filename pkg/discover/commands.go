package discover

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// scope is the context of a command.
type scope struct {
	// file is the build file, and section its rule, or its stage in a Dockerfile.
	file, section string
	known         variables
	loops         map[string][]string
}

// readSteps returns the steps of a build file. It accepts any text.
func readSteps(file string, data []byte, known variables) []step {
	s := scope{file: file, known: known, loops: map[string][]string{}}
	var steps []step
	for _, l := range linesOf(data) {
		text := strings.TrimLeft(strings.TrimSpace(l.text), "@-")
		switch {
		case isMakefile(file) && !strings.HasPrefix(l.text, "\t"):
			if rule, ok := ruleOf(l.text); ok {
				s.section = known.expand(rule, 0)
				s.known = maps.Clone(known)
				s.known["@"] = strings.ReplaceAll(rule, "%", "$*")
			}
			continue
		case strings.HasPrefix(text, "FROM "):
			_, s.section, _ = strings.Cut(text, " AS ")
			continue
		case strings.HasPrefix(text, "#"):
			continue
		}
		for _, parts := range loop.FindAllStringSubmatch(l.text+";", -1) {
			s.loops[parts[1]] = strings.Fields(s.known.expand(parts[2], 0))
		}
		for _, one := range s.stepsOf(text) {
			one.place = fmt.Sprintf("%s:%d", file, l.number)
			steps = append(steps, s.unrolled(one)...)
		}
	}
	return steps
}

// ruleOf returns the target of a rule of make.
func ruleOf(text string) (string, bool) {
	target, after, ok := strings.Cut(text, ":")
	target = strings.TrimSpace(target)
	if !ok || target == "" || strings.HasPrefix(target, "#") || strings.HasPrefix(target, ".") || strings.HasPrefix(after, "=") || strings.HasPrefix(after, ":=") || strings.ContainsAny(target, "=") {
		return "", false
	}
	return target, true
}

// unrolled returns a step of a loop once for each value of the loop's variable.
func (s scope) unrolled(one step) []step {
	for name, values := range s.loops {
		mark := unknown(name)
		literal := !slices.ContainsFunc(values, func(value string) bool { return strings.ContainsAny(value, unknownMark+"*?") })
		if !strings.Contains(one.source, mark) || !literal || len(values) > 100 {
			continue
		}
		steps := make([]step, 0, len(values))
		for _, value := range values {
			each := one
			each.source = strings.ReplaceAll(one.source, mark, value)
			each.target = strings.ReplaceAll(one.target, mark, value)
			steps = append(steps, each)
		}
		return steps
	}
	return []step{one}
}

// word is a word of a command line, or an operator of the shell.
type word struct {
	raw, text string
	operator  bool
}

// words splits a command line and expands its variables. The value of one variable may be several words.
func (s scope) words(text string) []word {
	var words []word
	var current strings.Builder
	quoted, hadQuotes := byte(0), false
	flush := func() {
		wasQuoted := hadQuotes
		hadQuotes = false
		if current.Len() == 0 {
			return
		}
		raw := current.String()
		current.Reset()
		expanded := s.known.expand(raw, 0)
		if wasQuoted {
			words = append(words, word{raw: raw, text: expanded})
			return
		}
		for _, field := range strings.Fields(expanded) {
			words = append(words, word{raw: raw, text: field})
		}
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '$' && quoted != '\'' && i+1 < len(text) && (text[i+1] == '(' || text[i+1] == '{'):
			_, rest := reference(text[i+1:])
			end := len(text) - len(rest)
			current.WriteString(text[i:end])
			i = end - 1
		case quoted != 0 && c == quoted:
			quoted = 0
		case quoted != 0:
			current.WriteByte(c)
		case c == '"' || c == '\'':
			quoted, hadQuotes = c, true
		case c == ' ' || c == '\t':
			flush()
		case c == '#' && current.Len() == 0:
			return words
		case strings.IndexByte("|&;<>(){}", c) >= 0 && (strings.IndexByte("{}", c) < 0 || current.Len() == 0):
			if current.String() == "2" && c == '>' {
				current.Reset() // the standard error
				words = append(words, word{text: "2>", operator: true})
				continue
			}
			flush()
			if n := len(words); n > 0 && words[n-1].operator && words[n-1].text == string(c) {
				words[n-1].text += string(c)
				continue
			}
			words = append(words, word{text: string(c), operator: true})
		default:
			current.WriteByte(c)
		}
	}
	flush()
	return words
}

// command is one command of a pipeline.
type command struct {
	words []word
	// from and to are the sources of its input and the target of its output.
	from, to word
}

// pipelines splits the words of a command line.
func pipelines(words []word) [][]command {
	all := [][]command{{{}}}
	for i := 0; i < len(words); i++ {
		pipeline := &all[len(all)-1]
		current := &(*pipeline)[len(*pipeline)-1]
		w := words[i]
		next := word{}
		if i+1 < len(words) && !words[i+1].operator {
			next = words[i+1]
		}
		switch {
		case !w.operator:
			current.words = append(current.words, w)
		case w.text == "|":
			*pipeline = append(*pipeline, command{})
		case w.text == ">" || w.text == ">>":
			current.to = next
			i++
		case w.text == "<":
			current.from = next
			i++
		case w.text == "2>":
			i++
		default:
			all = append(all, []command{{}})
		}
	}
	return all
}

// stepsOf returns the steps of a command line.
func (s scope) stepsOf(text string) []step {
	var steps []step
	dir := ""
	words := s.words(text)
	for _, pipeline := range pipelines(words) {
		if first := pipeline[0].arguments(); len(first) == 2 && first[0].text == "cd" {
			dir = path.Join(dir, first[1].text)
			continue
		}
		sources, target, kustomized := readPipeline(pipeline)
		for _, source := range sources {
			one := step{source: path.Join(dir, source.text), kustomize: kustomized, target: target.text, use: s.useOf(target)}
			if dir != "" && !path.IsAbs(target.text) {
				one.target = path.Join(dir, target.text)
			}
			if (target.text != "" || !kustomized) && !isReleaseFolder(source) {
				steps = append(steps, one)
			}
		}
	}
	if len(steps) == 0 && (isReleaseSetting(s.file) || strings.Contains(text, "gh release ")) {
		steps = uploads(words)
	}
	return steps
}

// isReleaseFolder reports whether a source is a file that an earlier step wrote to a release's folder.
func isReleaseFolder(source word) bool {
	first, _, _ := strings.Cut(source.text, "/")
	return isUnknown(first) && slices.ContainsFunc(wordsIn(first), isReleaseWord)
}

// isReleaseSetting reports whether a file is a workflow for releases, or a setting of a release tool.
func isReleaseSetting(file string) bool {
	ext := path.Ext(file)
	return (ext == ".yaml" || ext == ".yml") && slices.ContainsFunc(wordsIn(path.Base(file)), isReleaseWord)
}

// uploads returns a step for each word of a line that may name files which are published unchanged.
func uploads(words []word) []step {
	var steps []step
	for _, w := range words {
		if !w.operator && path.Ext(w.text) == ".yaml" && !strings.Contains(w.text, "://") && !isReleaseFolder(w) {
			steps = append(steps, step{source: w.text, use: forReleases})
		}
	}
	return steps
}

// arguments returns the words of a command without its prefixes.
func (c command) arguments() []word {
	words := c.words
	for len(words) > 0 {
		first := words[0].text
		name, _, isAssignment := strings.Cut(first, "=")
		leading := slices.Contains([]string{"RUN", "run:", "-", "if", "then", "else", "do", "time", "sudo", "exec", "!"}, first) ||
			isAssignment && variableName.MatchString(name) || strings.HasPrefix(first, "--mount=")
		if !leading {
			break
		}
		words = words[1:]
	}
	return words
}

// readPipeline returns the sources and the target of a pipeline, and whether it builds a kustomization.
func readPipeline(pipeline []command) (sources []word, target word, kustomized bool) {
	for _, c := range pipeline {
		words := c.arguments()
		if c.to.text != "" {
			target = c.to
		}
		if len(words) == 0 {
			continue
		}
		name := path.Base(words[0].text)
		switch dir, output, ok := kustomizeBuild(words); {
		case ok:
			sources, kustomized = []word{dir}, true
			if output.text != "" {
				target = output
			}
		case slices.Contains([]string{"cp", "mv", "install", "rsync", "COPY", "ADD"}, name):
			from, to := copied(words[1:])
			if to.text == "" {
				continue
			}
			target = to
			if !kustomized && !slices.ContainsFunc(from, func(w word) bool { return isStandardInput(w.text) }) {
				sources = from
			}
		case name == "tee" && len(words) > 1:
			target = words[len(words)-1]
		case !kustomized && len(sources) == 0:
			// sed, envsubst, cat and the like: their files are among their arguments.
			if c.from.text != "" {
				sources = []word{c.from}
				continue
			}
			for _, w := range words[1:] {
				if ext := path.Ext(w.text); ext == ".yaml" || ext == ".yml" {
					sources = append(sources, w)
				}
			}
		}
	}
	if target.text == "" || isStandardInput(target.text) || target.text == "/dev/null" {
		return nil, word{}, false
	}
	return sources, target, kustomized
}

// isStandardInput reports whether a path is a command's input.
func isStandardInput(name string) bool {
	return name == "-" || name == "/dev/stdin" || name == "/dev/fd/0"
}

// kustomizeBuild returns the folder that a command builds, and the file of the result.
func kustomizeBuild(words []word) (dir, output word, ok bool) {
	at := -1
	for i, w := range words {
		previous := ""
		if i > 0 {
			previous = strings.ToLower(words[i-1].raw + words[i-1].text)
		}
		if w.text == "build" && strings.Contains(previous, "kustomize") || w.text == "kustomize" && strings.Contains(previous, "kubectl") {
			at = i
			break
		}
	}
	if at < 0 {
		return dir, output, false
	}
	dir = word{text: "."}
	for i := at + 1; i < len(words); i++ {
		switch text := words[i].text; {
		case text == "-o" || text == "--output":
			if i+1 < len(words) {
				output = words[i+1]
			}
			i++
		case strings.HasPrefix(text, "--output="):
			output = word{raw: words[i].raw, text: strings.TrimPrefix(text, "--output=")}
		case slices.Contains([]string{"--load-restrictor", "--reorder", "--env", "-e", "--helm-command"}, text):
			i++
		case !strings.HasPrefix(text, "-"):
			dir = words[i]
		}
	}
	return dir, output, true
}

// copied returns the source files and the target of a copying command.
func copied(words []word) (from []word, to word) {
	for i := 0; i < len(words); i++ {
		switch text := words[i].text; {
		case text == "-t" || text == "--target-directory":
			if i+1 < len(words) {
				to = word{raw: words[i+1].raw, text: words[i+1].text + "/"}
			}
			i++
		case text == "-m" || text == "-o" || text == "-g":
			i++
		case strings.HasPrefix(text, "--from="), text == "-d":
			return nil, word{} // a file of another image, a new folder
		case !strings.HasPrefix(text, "-") || text == "-":
			from = append(from, words[i])
		}
	}
	if to.text != "" || len(from) < 2 {
		return from, to
	}
	return from[:len(from)-1], from[len(from)-1]
}

// useOf returns the use of a step, from the names of its file, its section and its target.
func (s scope) useOf(target word) use {
	near := slices.Concat(wordsIn(s.section), wordsIn(path.Dir(target.raw)), wordsIn(path.Dir(target.text)))
	if !strings.Contains(path.Base(target.raw), ".") {
		near = append(near, wordsIn(path.Base(target.raw))...)
	}
	file := wordsIn(path.Base(s.file))
	isTest := func(w string) bool {
		return slices.Contains([]string{"e2e", "test", "tests", "testing", "dev", "tilt", "kind", "chart", "charts", "helm", "conformance", "overrides"}, w)
	}
	switch {
	case slices.ContainsFunc(near, isTest), slices.ContainsFunc(file, isTest):
		return forTests
	case slices.ContainsFunc(near, isReleaseWord), slices.ContainsFunc(file, isReleaseWord):
		return forReleases
	}
	return unclear
}

// isReleaseWord reports whether a word of a name is about a release.
func isReleaseWord(w string) bool {
	return strings.HasPrefix(w, "releas") || strings.HasPrefix(w, "publish") || w == "dist" || w == "goreleaser" || w == "upload" || w == "assets"
}

// notInWords matches the characters between the words of a name.
var notInWords = regexp.MustCompile(`[^a-z0-9]+`)

// wordsIn returns the words of a name, in lower case.
func wordsIn(name string) []string {
	return notInWords.Split(strings.ToLower(name), -1)
}
