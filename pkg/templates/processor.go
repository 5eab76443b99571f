package templates

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"k8s.io/utils/lru"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
)

// processor is clusterctl's processor. It runs only on the lines of a file with a dollar sign, and once for each line:
// its search for variables with spaces is the slowest step for a file, callers repeat it, and a provider's templates
// have most lines in common.
type processor struct {
	yamlprocessor.Processor
}

// The limits of the cache of lines.
const (
	// maxKnownLines is the number of lines in the cache.
	maxKnownLines = 1 << 14
	// maxKnownLine is the maximum length of a line in the cache, in bytes.
	maxKnownLine = 1 << 10
)

// known are the variables of lines that end outside of a variable, as a map[string]*string.
var known = lru.New(maxKnownLines)

// NewProcessor returns a processor with the behaviour of clusterctl's own, but much faster for files with few
// variables. Its error is ErrTooManyVariables for a text that clusterctl's own could not process in reasonable time.
func NewProcessor() yamlprocessor.Processor {
	return newProcessor()
}

func newProcessor() processor {
	return processor{Processor: bounded{yamlprocessor.NewSimpleProcessor()}}
}

// The limits of the text that clusterctl's processor gets at once, usually a line. The processor calls itself for each
// variable, and copies the text for each doubled dollar: a hostile file takes the stack of the whole process, or hours.
const (
	// maxDollars is the maximum number of dollars in a part of a file that can't be split.
	maxDollars = 50_000
	// maxCopied is the number of bytes that the processor may copy for them.
	maxCopied = 4 << 30
)

// ErrTooManyVariables is the error for a file with too many variables in a line, or in lines that can't be read one by
// one.
var ErrTooManyVariables = fmt.Errorf("a line, or a group of lines that belong together, has more than %d dollar signs, which is the limit", maxDollars)

// bounded is clusterctl's processor with limits.
type bounded struct {
	yamlprocessor.Processor
}

func (b bounded) GetVariableMap(raw []byte) (map[string]*string, error) {
	if excessive(raw) {
		return nil, ErrTooManyVariables
	}
	return b.Processor.GetVariableMap(raw)
}

func (b bounded) Process(raw []byte, get func(string) (string, error)) ([]byte, error) {
	if excessive(raw) {
		return raw, ErrTooManyVariables
	}
	return b.Processor.Process(raw, get)
}

// excessive reports whether a text exceeds the limits.
func excessive(raw []byte) bool {
	dollars := bytes.Count(raw, []byte("$"))
	return dollars > maxDollars || dollars*len(raw) > maxCopied && bytes.Count(raw, []byte("$$"))*len(raw) > maxCopied
}

// GetVariables returns the names of a file's variables, sorted.
func (p processor) GetVariables(raw []byte) ([]string, error) {
	variables, err := p.GetVariableMap(raw)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(variables)), nil
}

// GetVariableMap returns the variables of a file with their defaults, nil if they have none. The first use of a
// variable sets its default.
func (p processor) GetVariableMap(raw []byte) (map[string]*string, error) {
	parts, _, ok := p.split(raw)
	if !ok {
		return p.Processor.GetVariableMap(raw)
	}
	return variablesIn(parts), nil
}

// variablesIn returns the variables of parts of a file with their defaults.
func variablesIn(parts []part) map[string]*string {
	variables := map[string]*string{}
	for _, part := range parts {
		for name, fallback := range part.variables {
			if _, known := variables[name]; !known {
				variables[name] = fallback
			}
		}
	}
	return variables
}

// Process returns a file with its variables replaced. Errors are those of clusterctl's processor for the whole file.
func (p processor) Process(raw []byte, get func(string) (string, error)) ([]byte, error) {
	parts, _, ok := p.split(raw)
	for name, fallback := range variablesIn(parts) {
		if _, err := get(name); err != nil && fallback == nil {
			ok = false // a value is missing
		}
	}
	if ok {
		if result, err := p.replace(parts, get, false); err == nil {
			return result, nil
		}
	}
	return p.Processor.Process(raw, get)
}

// processLines does what Process does and keeps the number of lines: a variable over several lines is followed by empty
// lines.
func (p processor) processLines(raw []byte, get func(string) (string, error)) ([]byte, error) {
	parts, _, ok := p.split(raw)
	if !ok {
		return p.Process(raw, get)
	}
	return p.replace(parts, get, true)
}

// replace returns parts of a file with their variables replaced.
func (p processor) replace(parts []part, get func(string) (string, error), keepLines bool) ([]byte, error) {
	var result []byte
	for _, part := range parts {
		if part.variables == nil {
			result = append(result, part.text...)
			continue
		}
		// Whether a value is missing depends on the whole file.
		processed, err := p.Processor.Process(part.text, func(name string) (string, error) {
			value, _ := get(name)
			return value, nil
		})
		if err != nil {
			return nil, err
		}
		result = append(result, processed...)
		if lost := bytes.Count(part.text, []byte("\n")) - bytes.Count(processed, []byte("\n")); keepLines && lost > 0 {
			result = append(result, bytes.Repeat([]byte("\n"), lost)...)
		}
	}
	return result, nil
}

// part is a group of lines of a file.
type part struct {
	text []byte
	// variables are those of the lines, with their defaults; nil for lines without a dollar, which stay as they are.
	variables map[string]*string
}

// longestVariable is the number of lines over which a variable may continue before a file is no longer split.
const longestVariable = 64

// split splits a file into parts that clusterctl's processor reads alone as it reads them in the file: at ends of lines
// outside of a variable. For a file that can't be split, it returns false and how much of it the processor can read.
func (p processor) split(raw []byte) (parts []part, readable int, ok bool) {
	if end := bytes.IndexByte(raw, 0); end >= 0 {
		return nil, end, false // the processor treats it as the end of the file
	}
	for rest := raw; len(rest) > 0; {
		dollar := bytes.IndexByte(rest, '$')
		if dollar < 0 {
			return append(parts, part{text: rest}), len(raw), true
		}
		if start := bytes.LastIndexByte(rest[:dollar], '\n') + 1; start > 0 {
			parts = append(parts, part{text: rest[:start]})
			rest = rest[start:]
		}
		next, good, ok := p.closed(rest)
		if !ok {
			return nil, len(raw) - len(rest) + good, false
		}
		parts = append(parts, next)
		rest = rest[len(next.text):]
	}
	return parts, len(raw), true
}

// mayGoOn matches a text that changes the meaning of a name and a brace after it: clusterctl removes the spaces from a
// variable even if it is escaped.
var mayGoOn = regexp.MustCompile(`\$\{[\sA-Za-z0-9_$]*$`)

// closed returns the lines at the start of a text up to the first line that ends outside of a variable, and how much of
// it the processor can read.
func (p processor) closed(text []byte) (lines part, readable int, ok bool) {
	length := 0
	for n := range longestVariable {
		line := bytes.IndexByte(text[length:], '\n') + 1
		if line == 0 {
			line = len(text) - length
		}
		length += line
		isLine := n == 0 && length <= maxKnownLine
		if isLine {
			if variables, ok := known.Get(string(text[:length])); ok {
				return part{text: text[:length], variables: variables.(map[string]*string)}, length, true
			}
		}
		variables, err := p.Processor.GetVariableMap(text[:length])
		if err == nil {
			readable = length
			if length == len(text) || !mayGoOn.Match(text[:length]) {
				if isLine {
					known.Add(string(text[:length]), variables)
				}
				return part{text: text[:length], variables: variables}, readable, true
			}
		}
		if length == len(text) {
			break
		}
	}
	return part{}, readable, false
}

// WithDefaults returns a file with its variables' defaults, or false if one has none or clusterctl's processor can't
// read them.
func WithDefaults(data []byte) ([]byte, bool) {
	notSet := func(name string) (string, error) { return "", fmt.Errorf("the variable %s is not set", name) }
	rendered, err := NewProcessor().Process(data, notSet)
	return rendered, err == nil
}
