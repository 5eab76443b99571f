package templates

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
)

// processor is clusterctl's own processor, asked only of the lines of a file in which there is a
// dollar, and once for each line: its search for variables with spaces costs more than all else that is
// done with a file, each caller asks several times over, and a provider's templates have most lines in common.
type processor struct {
	yamlprocessor.Processor
}

// The limits of the lines whose variables are kept.
const (
	// maxKnownLines is how many lines are kept.
	maxKnownLines = 1 << 14
	// maxKnownLine is how long a kept line may be, in bytes.
	maxKnownLine = 1 << 10
)

// lineVariables are the variables, with their defaults, of lines at whose end no variable is open.
// Several releases may be read at once.
type lineVariables struct {
	mu    sync.Mutex
	lines map[string]map[string]*string
}

var known = lineVariables{lines: map[string]map[string]*string{}}

// find returns the variables of a line, or false where they are not known.
func (v *lineVariables) find(line []byte) (map[string]*string, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	variables, ok := v.lines[string(line)]
	return variables, ok
}

// add keeps the variables of a line.
func (v *lineVariables) add(line []byte, variables map[string]*string) {
	if len(line) > maxKnownLine {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.lines) >= maxKnownLines {
		clear(v.lines)
	}
	v.lines[string(line)] = variables
}

// NewProcessor returns a processor that does what clusterctl's own does, in a fraction of its time on
// files of which variables are a small part. Its error is ErrTooManyVariables for a text that
// clusterctl's own would choke on.
func NewProcessor() yamlprocessor.Processor {
	return newProcessor()
}

func newProcessor() processor {
	return processor{Processor: bounded{yamlprocessor.NewSimpleProcessor()}}
}

// The limits of what is handed to clusterctl's processor at once, a line as a rule. It calls itself
// for each variable, and copies the text for each doubled dollar: a file made for it takes the stack
// of the whole process, or hours.
const (
	// maxDollars is how many dollars there may be in a part of a file that can't be cut.
	maxDollars = 50_000
	// maxCopied is how many bytes it may copy for them.
	maxCopied = 4 << 30
)

// ErrTooManyVariables is the error of a file with more variables in a line, or in lines that can't be
// read one by one, than are read.
var ErrTooManyVariables = fmt.Errorf("there are more than %d dollars in a line, or in lines that belong together, which is more than is read", maxDollars)

// bounded is clusterctl's processor within the limits.
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

// excessive says whether a text is beyond the limits.
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
	names := make([]string, 0, len(variables))
	names = slices.AppendSeq(names, maps.Keys(variables))
	slices.Sort(names)
	return names, nil
}

// GetVariableMap returns the variables of a file with their defaults, nil where there is none. The
// first use of a variable sets its default.
func (p processor) GetVariableMap(raw []byte) (map[string]*string, error) {
	variables := map[string]*string{}
	parts, ok := p.split(raw)
	if !ok {
		return p.Processor.GetVariableMap(raw)
	}
	for _, part := range parts {
		for name, fallback := range part.variables {
			if _, known := variables[name]; !known {
				variables[name] = fallback
			}
		}
	}
	return variables, nil
}

// Process returns a file with its variables replaced. Errors are those of clusterctl's processor for
// the whole file.
func (p processor) Process(raw []byte, get func(string) (string, error)) ([]byte, error) {
	if parts, ok := p.split(raw); ok && !p.lacks(parts, get) {
		if result, err := p.replace(parts, get, false); err == nil {
			return result, nil
		}
	}
	return p.Processor.Process(raw, get)
}

// processLines does what Process does and keeps the number of lines: where a variable goes over
// several of them, empty lines follow.
func (p processor) processLines(raw []byte, get func(string) (string, error)) ([]byte, error) {
	parts, ok := p.split(raw)
	if !ok {
		return p.Process(raw, get)
	}
	return p.replace(parts, get, true)
}

// replace returns parts of a file with their variables replaced.
func (p processor) replace(parts []part, get func(string) (string, error), keepLines bool) ([]byte, error) {
	var result []byte
	for _, part := range parts {
		if part.plain {
			result = append(result, part.text...)
			continue
		}
		// Whether a value is missing is a matter of the whole file.
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

// lacks says whether a variable has no value. A variable's first use says whether it needs one.
func (p processor) lacks(parts []part, get func(string) (string, error)) bool {
	seen := map[string]bool{}
	for _, part := range parts {
		for name, fallback := range part.variables {
			if seen[name] {
				continue
			}
			seen[name] = true
			if _, err := get(name); err != nil && fallback == nil {
				return true
			}
		}
	}
	return false
}

// part is a number of lines of a file.
type part struct {
	text []byte
	// plain says that there is no dollar in it: it stays as it is.
	plain bool
	// variables are those of the lines, with their defaults.
	variables map[string]*string
}

// longestVariable is how many lines a variable may go over before a file is no longer split.
const longestVariable = 64

// split cuts a file into parts that clusterctl's processor reads by themselves as it reads them in
// the file: it cuts at ends of lines with no variable open. It is false of a file that can't be cut.
func (p processor) split(raw []byte) ([]part, bool) {
	if bytes.IndexByte(raw, 0) >= 0 {
		return nil, false // the processor takes it for the end of the file
	}
	parts, _, ok := p.cut(raw)
	return parts, ok
}

// cut does what split does, and says up to where the processor can read a file that can't be cut.
func (p processor) cut(raw []byte) (parts []part, readable int, ok bool) {
	for rest := raw; len(rest) > 0; {
		dollar := bytes.IndexByte(rest, '$')
		if dollar < 0 {
			return append(parts, part{text: rest, plain: true}), len(raw), true
		}
		if start := bytes.LastIndexByte(rest[:dollar], '\n') + 1; start > 0 {
			parts = append(parts, part{text: rest[:start], plain: true})
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

// mayGoOn is a text behind which a name and a brace would be more than they are by themselves:
// clusterctl takes the spaces out of a variable even where it is escaped.
var mayGoOn = regexp.MustCompile(`\$\{[\sA-Za-z0-9_$]*$`)

// closed returns the lines at the beginning of a text up to the first at whose end no variable is
// open, and how much of it the processor can read.
func (p processor) closed(text []byte) (lines part, readable int, ok bool) {
	length := 0
	for n := range longestVariable {
		line := bytes.IndexByte(text[length:], '\n') + 1
		if line == 0 {
			line = len(text) - length
		}
		length += line
		if n == 0 {
			if variables, ok := known.find(text[:length]); ok {
				return part{text: text[:length], variables: variables}, length, true
			}
		}
		variables, err := p.Processor.GetVariableMap(text[:length])
		if err == nil {
			readable = length
			if length == len(text) || !mayGoOn.Match(text[:length]) {
				if n == 0 {
					known.add(text[:length], variables)
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

// WithDefaults returns a file with its variables' defaults, or false where one has none or where
// clusterctl's processor can't read them.
func WithDefaults(data []byte) ([]byte, bool) {
	notSet := func(name string) (string, error) { return "", fmt.Errorf("the variable %s is not set", name) }
	rendered, err := NewProcessor().Process(data, notSet)
	return rendered, err == nil
}
