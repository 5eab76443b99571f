package discover

import (
	"path"
	"regexp"
	"strings"
)

// unknownMark encloses the name of a variable with an unknown value.
const unknownMark = "\x00"

// unknown returns the placeholder of a variable without a known value.
func unknown(name string) string { return unknownMark + name + unknownMark }

// isUnknown reports whether a text consists only of variables without known values.
func isUnknown(text string) bool {
	return strings.HasPrefix(text, unknownMark) && patternPart.ReplaceAllString(text, "") == ""
}

// isMakefile reports whether a file is a makefile.
func isMakefile(name string) bool {
	return path.Base(name) == "Makefile" || path.Base(name) == "GNUmakefile" || path.Ext(name) == ".mk"
}

// isBuildFile reports whether a file may say what a tree releases: makefiles, workflows, settings of goreleaser and
// Cloud Build, Dockerfiles, and scripts.
func isBuildFile(name string) bool {
	base, ext := path.Base(name), path.Ext(name)
	isYAML := ext == ".yaml" || ext == ".yml"
	switch {
	case isMakefile(name), strings.HasPrefix(base, "Dockerfile"), ext == ".Dockerfile", ext == ".sh":
		return true
	case isYAML && strings.HasPrefix(name, ".github/workflows/"):
		return true
	}
	return isYAML && (strings.HasPrefix(strings.TrimPrefix(base, "."), "goreleaser") || strings.HasPrefix(base, "cloudbuild") || base == ".gitlab-ci.yml")
}

// line is a line of a build file, joined with its continuation lines.
type line struct {
	number int
	text   string
}

// linesOf returns the lines of a build file.
func linesOf(data []byte) []line {
	var lines []line
	continued := false
	for i, text := range strings.Split(strings.ReplaceAll(string(data), unknownMark, ""), "\n") {
		text = strings.TrimSuffix(text, "\r")
		body, more := strings.CutSuffix(text, `\`)
		if continued {
			lines[len(lines)-1].text += " " + strings.TrimSpace(body)
		} else {
			lines = append(lines, line{i + 1, body})
		}
		continued = more
	}
	return lines
}

// variables are the values of a build file's variables, unexpanded.
type variables map[string]string

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	leadingName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)
	assignment   = regexp.MustCompile(`^\s*(?:(?:export|local|readonly|override|ARG|ENV)\s+)*([A-Za-z_][A-Za-z0-9_]*)\s*(:=|::=|\?=|\+=|=|: )\s*(.*)$`)
	defaulted    = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*):?[-=](.*)$`)
	loop         = regexp.MustCompile(`\bfor\s+([A-Za-z_][A-Za-z0-9_]*)\s+in\s+([^;]*?)\s*;`)
)

// collect adds the variables that a build file sets.
func (v variables) collect(data []byte) {
	for _, l := range linesOf(data) {
		parts := assignment.FindStringSubmatch(l.text)
		if parts == nil || strings.HasPrefix(l.text, "\t") {
			continue
		}
		name, operator, value := parts[1], parts[2], parts[3]
		if at := strings.Index(" "+value, " #"); at >= 0 {
			value = value[:max(at-1, 0)]
		}
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		_, known := v[name]
		switch {
		case operator == ": " && name != strings.ToUpper(name):
			// This is a field of a YAML file, not a variable of its environment.
		case operator == "+=" && known:
			v[name] = strings.TrimSpace(v[name] + " " + value)
		case operator != "?=" || !known:
			v[name] = value
		}
	}
}

// Limits for variables that name each other, or that a hostile file makes long.
const (
	maxDepth = 8
	maxText  = 4096
)

// expand replaces the variables in a text by their values.
func (v variables) expand(text string, depth int) string {
	var b strings.Builder
	for len(text) > 0 && b.Len() < maxText {
		at := strings.IndexByte(text, '$')
		if at < 0 || at == len(text)-1 {
			b.WriteString(text)
			break
		}
		b.WriteString(text[:at])
		text = strings.TrimLeft(text[at:], "$")
		inner, rest := reference(text)
		b.WriteString(v.value(inner, depth))
		text = rest
	}
	expanded := b.String()
	return expanded[:min(len(expanded), maxText)]
}

// reference splits what follows a dollar sign into the variable and the rest.
func reference(text string) (inner, rest string) {
	if text == "" {
		return "", ""
	}
	if text[0] == '(' || text[0] == '{' {
		depth := 0
		for i := range len(text) {
			switch text[i] {
			case '(', '{':
				depth++
			case ')', '}':
				if depth--; depth == 0 {
					return text[1:i], text[i+1:]
				}
			}
		}
		return "", ""
	}
	end := max(1, len(leadingName.FindString(text))) // other variables, such as $@, have one character
	return text[:end], text[end:]
}

// value returns the value of a variable, or of one of make's functions, from the text in its brackets.
func (v variables) value(inner string, depth int) string {
	if depth >= maxDepth {
		return unknown("")
	}
	if value, ok := v[inner]; ok {
		return v.expand(value, depth+1)
	}
	if variableName.MatchString(inner) {
		return unknown(inner)
	}
	if parts := defaulted.FindStringSubmatch(inner); parts != nil {
		if value, ok := v[parts[1]]; ok && !strings.Contains(value, "${"+parts[1]) {
			return v.expand(value, depth+1)
		}
		return v.expand(parts[2], depth+1)
	}
	for _, function := range []string{"abspath ", "realpath ", "strip "} {
		if argument, ok := strings.CutPrefix(inner, function); ok {
			return v.expand(strings.TrimSpace(argument), depth+1)
		}
	}
	if inner == "*" {
		return unknown("stem")
	}
	return unknown("")
}
