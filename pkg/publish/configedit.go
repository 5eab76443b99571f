package publish

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// configError is a place in a clusterctl.yaml and what is wrong there.
type configError struct {
	// line counts from one; zero is the file as a whole.
	line    int
	message string
	err     error
}

func (e *configError) Error() string {
	text := e.message
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	if e.line == 0 {
		return text
	}
	return fmt.Sprintf("line %d: %s", e.line, text)
}

func (e *configError) Unwrap() error { return e.err }

// inFile adds the file's path to an error of editProviders.
func inFile(path string, err error) error {
	if at, ok := err.(*configError); ok && at.line > 0 { //nolint:errorlint // only an error that nothing is wrapped around has its line in front
		return fmt.Errorf("%s:%d: %w", path, at.line, &configError{message: at.message, err: at.err})
	}
	return fmt.Errorf("%s: %w", path, err)
}

// splice replaces the bytes from start to end of a text.
type splice struct {
	start, end int
	text       string
}

// editProviders returns the text of a clusterctl.yaml with these entries in its list of providers,
// and says in words what was changed; nothing where the entries are right already. It splices: all
// bytes but the URLs that are wrong stay, and new entries come behind the old ones (before them in
// a list in one line). A text that clusterctl would not read, or that can't be edited in this way
// without touching something else, is an error with its line and with what to do.
func editProviders(text []byte, entries []providerEntry) ([]byte, []string, error) {
	doc, err := parseConfig(text)
	if err != nil {
		return nil, nil, err
	}
	var (
		splices []splice
		changed []string
		added   []providerEntry
	)
	updated := map[int]string{} // the new URLs by index of the list
	for _, entry := range entries {
		found := false
		for i, item := range doc.items {
			if item.name != entry.Name || item.kind != string(entry.Type) {
				continue
			}
			found = true
			if sameRepository(item.url, entry.URL) {
				continue
			}
			s, err := doc.replaceURL(i, entry)
			if err != nil {
				return nil, nil, err
			}
			splices = append(splices, s)
			updated[i] = entry.URL
			changed = append(changed, fmt.Sprintf("set the url of %s, which was %s", entry, item.url))
		}
		if !found {
			added = append(added, entry)
			changed = append(changed, "add "+entry.String())
		}
	}
	if len(changed) == 0 {
		return text, nil, nil
	}
	if len(added) > 0 {
		s, err := doc.addEntries(added)
		if err != nil {
			return nil, nil, err
		}
		splices = append(splices, s)
	}
	edited := applySplices(text, splices)
	if !doc.became(edited, updated, added) {
		return nil, nil, doc.byHand(doc.line(), entries)
	}
	return edited, changed, nil
}

func applySplices(text []byte, splices []splice) []byte {
	edited := slices.Clone(text)
	slices.SortFunc(splices, func(a, b splice) int { return b.start - a.start })
	for _, s := range splices {
		edited = slices.Replace(edited, s.start, s.end, []byte(s.text)...)
	}
	return edited
}

// became says whether an edited text holds what it should: all as before, but for the URLs that
// were updated and the entries that were added. It is what makes splicing safe: whatever YAML has
// up its sleeve, a text that means something else is never written.
func (d *configDocument) became(edited []byte, updated map[int]string, added []providerEntry) bool {
	after, err := parseConfig(edited)
	if err != nil || !reflect.DeepEqual(d.otherValues(), after.otherValues()) {
		return false
	}
	var old []configItem
	for i, item := range d.items {
		value := map[string]any{}
		for k, v := range item.value {
			value[k] = v
			if u, ok := updated[i]; ok && strings.EqualFold(k, "url") {
				value[k] = u
			}
		}
		old = append(old, configItem{value: value})
	}
	var fresh []configItem
	for _, e := range added {
		fresh = append(fresh, configItem{value: map[string]any{"name": e.Name, "url": e.URL, "type": string(e.Type)}})
	}
	sameItems := func(want []configItem) bool {
		return slices.EqualFunc(want, after.items, func(a, b configItem) bool { return reflect.DeepEqual(a.value, b.value) })
	}
	return sameItems(slices.Concat(old, fresh)) || sameItems(slices.Concat(fresh, old))
}

// otherValues returns all of the configuration but the list of providers.
func (d *configDocument) otherValues() map[string]any {
	others := map[string]any{}
	for k, v := range d.values {
		if !strings.EqualFold(k, providersKey) {
			others[k] = v
		}
	}
	return others
}

// byHand is the error for a text that is right but can't be spliced.
func (d *configDocument) byHand(line int, entries []providerEntry) error {
	return &configError{line: line, message: fmt.Sprintf(
		"the list of providers is written in a way that can't be changed in place: write these entries into it, then publish again:\n%s",
		blockEntries(entries, "  ", "\n"))}
}

// replaceURL returns how the URL of an entry of the list is replaced.
func (d *configDocument) replaceURL(index int, entry providerEntry) (splice, error) {
	node := d.items[index].urlNode
	if node == nil {
		return splice{}, d.byHand(d.items[index].line, []providerEntry{entry})
	}
	start := d.offset(node)
	end, ok := d.scalarEnd(node, start)
	if !ok {
		return splice{}, d.byHand(node.Line, []providerEntry{entry})
	}
	return splice{start: start, end: end, text: quoteYAML(entry.URL)}, nil
}

// addEntries returns how entries are added to the list.
func (d *configDocument) addEntries(entries []providerEntry) (splice, error) {
	switch {
	case d.root == nil:
		return d.appendKey(entries, ""), nil
	case d.key == nil && d.values[providersKey] != nil:
		return splice{}, d.byHand(d.root.Line, entries) // it comes with a merge key
	case d.key == nil && d.root.Style&yaml.FlowStyle != 0:
		return d.intoFlow(d.root, providersKey+": ["+flowEntries(entries)+"]", len(d.root.Content) == 0, entries)
	case d.key == nil:
		return d.appendKey(entries, strings.Repeat(" ", d.root.Column-1)), nil
	case d.list.Kind == yaml.AliasNode:
		return splice{}, d.byHand(d.list.Line, entries)
	case d.list.Kind == yaml.ScalarNode:
		return d.intoNull(entries), nil
	case d.list.Style&yaml.FlowStyle != 0:
		if s, ok := d.intoEmptyList(entries); ok {
			return s, nil
		}
		return d.intoFlow(d.list, flowEntries(entries), len(d.list.Content) == 0, entries)
	}
	return d.behindLast(entries), nil
}

// appendKey adds the list at the document's end.
func (d *configDocument) appendKey(entries []providerEntry, indent string) splice {
	at := d.lineStart(d.endLine())
	text := indent + providersKey + ":" + d.newline + blockEntries(entries, indent+"  ", d.newline)
	if at > 0 && !endsLine(d.text[:at]) {
		text = d.newline + text
	}
	return splice{start: at, end: at, text: text}
}

// intoFlow adds text behind the opening bracket or brace of a node.
func (d *configDocument) intoFlow(node *yaml.Node, text string, empty bool, entries []providerEntry) (splice, error) {
	start := d.offset(node)
	if start >= len(d.text) || d.text[start] != '[' && d.text[start] != '{' {
		return splice{}, d.byHand(node.Line, entries) // an anchor or a tag is in front
	}
	if !empty {
		text += ", "
	}
	return splice{start: start + 1, end: start + 1, text: text}, nil
}

// intoEmptyList makes "providers: []" a list over several lines, where the file is written so.
func (d *configDocument) intoEmptyList(entries []providerEntry) (splice, bool) {
	start := d.offset(d.list)
	if d.root.Style&yaml.FlowStyle != 0 || !strings.HasPrefix(string(d.text[start:]), "[]") {
		return splice{}, false
	}
	return d.underKey(start, start+len("[]"), entries), true
}

// intoNull gives a list to a key that has none: "providers:" or "providers: null".
func (d *configDocument) intoNull(entries []providerEntry) splice {
	if d.list.Value != "" {
		start := d.offset(d.list)
		return d.underKey(start, start+len(d.list.Value), entries)
	}
	at := d.lineStart(d.key.Line)
	text := blockEntries(entries, d.itemIndent(), d.newline)
	if !endsLine(d.text[:at]) {
		text = d.newline + text
	}
	return splice{start: at, end: at, text: text}
}

// underKey puts a list in place of a value that stands in the line of its key.
func (d *configDocument) underKey(start, end int, entries []providerEntry) splice {
	for start > 0 && d.text[start-1] == ' ' {
		start--
	}
	list := blockEntries(entries, d.itemIndent(), d.newline)
	return splice{start: start, end: end, text: d.newline + strings.TrimSuffix(list, d.newline)}
}

func (d *configDocument) itemIndent() string {
	return strings.Repeat(" ", d.key.Column+1)
}

// behindLast adds entries behind the last one of a list over several lines, and behind the
// comments that are indented as far as that one.
func (d *configDocument) behindLast(entries []providerEntry) splice {
	indent := d.list.Column - 1
	last := lastLine(d.list)
	line := last // counts from zero: the line behind the last
	for i := last; i < d.nextKeyLine(); i++ {
		text := strings.TrimSpace(d.lineText(i))
		if text != "" && !strings.HasPrefix(text, "#") {
			line = i + 1
		}
	}
	for ; line < d.nextKeyLine(); line++ {
		text := d.lineText(line)
		comment := strings.TrimLeft(text, " ")
		if !strings.HasPrefix(comment, "#") || len(text)-len(comment) <= indent {
			break
		}
	}
	at := d.lineStart(line)
	text := blockEntries(entries, strings.Repeat(" ", indent), d.newline)
	if !endsLine(d.text[:at]) {
		text = d.newline + text
	}
	return splice{start: at, end: at, text: text}
}

// blockEntries writes entries as a list over several lines.
func blockEntries(entries []providerEntry, indent, newline string) string {
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(indent + "- name: " + quoteYAML(e.Name) + newline)
		b.WriteString(indent + "  url: " + quoteYAML(e.URL) + newline)
		b.WriteString(indent + "  type: " + quoteYAML(string(e.Type)) + newline)
	}
	return b.String()
}

// flowEntries writes entries as a list in one line, without its brackets.
func flowEntries(entries []providerEntry) string {
	texts := make([]string, 0, len(entries))
	for _, e := range entries {
		texts = append(texts, fmt.Sprintf("{name: %s, url: %s, type: %s}", quoteYAML(e.Name), quoteYAML(e.URL), quoteYAML(string(e.Type))))
	}
	return strings.Join(texts, ", ")
}

// quoteYAML quotes a value, as a name such as 1 would be a number. Names, types and escaped URLs
// have nothing in them that had to be escaped here.
func quoteYAML(value string) string {
	return `"` + value + `"`
}
