package diff

import (
	"fmt"
	"slices"
	"strings"
)

// section is a part of the description of a difference.
type section struct {
	// group is the audience, and title the topic; "" is the group as a whole.
	group, title string
	// in joins the subjects of its notes with their places.
	in string
}

// The sections in their order. Changes that break users, now or later, are only in upgradeNotes.
var (
	notCompared    = &section{group: "Not compared"}
	upgradeNotes   = &section{group: "Upgrade notes"}
	variables      = &section{group: forUsers, title: "Variables"}
	flavors        = &section{group: forUsers, title: "Flavors and ClusterClasses", in: " in "}
	api            = &section{group: forUsers, title: "API", in: " "}
	permissions    = &section{group: forOperators, title: "Permissions"}
	flags          = &section{group: forOperators, title: "Flags and environment"}
	imageNames     = &section{group: forOperators, title: "Images"}
	webhooks       = &section{group: forOperators, title: "Webhooks"}
	series         = &section{group: others, title: "Contract and release series"}
	otherObjects   = &section{group: others, title: "Objects"}
	statusLimits   = &section{group: others, title: "Limits of the status, which the manager writes", in: " "}
	definitionText = &section{group: others, title: "Labels and annotations of kinds"}
	otherFiles     = &section{group: others, title: "Files"}
)

const (
	forUsers     = "For users"
	forOperators = "For operators"
	others       = "Other changes"
)

// note describes one change.
type note struct {
	of *section
	// subject and place locate it, e.g. a kind and its version; "" means none.
	subject, place string
	// field is the path of the changed field, or "".
	field string
	text  phrase
	// breaks reports whether it breaks users.
	breaks Narrowing
	// isLimit means that it is a new limit, which the values of most users satisfy.
	isLimit bool
	// deprecates means that it announces a later removal.
	deprecates bool
}

// forUpgrade reports whether users have to know it before they upgrade.
func (n note) forUpgrade() bool { return n.breaks > Widens || n.deprecates }

// weight determines the order: changes that break users, then deprecations, then new limits.
func (n note) weight() int {
	switch {
	case n.isLimit && n.forUpgrade():
		return weightOfLimits
	case n.breaks > Widens:
		return weightOfLimits + 1 + int(n.breaks)
	case n.deprecates:
		return weightOfLimits + 1
	}
	return 0
}

// weightOfLimits is the weight of new limits.
const weightOfLimits = 1

// phrase is a text of this package in which each %s stands for values from a release.
type phrase struct {
	words  string
	values [][]string
}

// say returns a phrase with one value for each %s.
func say(words string, values ...string) phrase {
	p := phrase{words: words}
	for _, value := range values {
		p.values = append(p.values, []string{value})
	}
	return p
}

// write returns the phrase with its values, formatted by a function.
func (p phrase) write(value func(string) string) string {
	var b strings.Builder
	for i, words := range strings.Split(p.words, "%s") {
		if i > 0 {
			for j, v := range p.values[i-1] {
				if j > 0 {
					b.WriteString(", ")
				}
				b.WriteString(value(v))
			}
		}
		b.WriteString(words)
	}
	return b.String()
}

// chapter is a section with its entries.
type chapter struct {
	*section
	entries []entry
}

// entry is the description of some subjects.
type entry struct {
	// about names them; a phrase without words means none.
	about phrase
	lines []line
}

// write writes an entry as one line, or as its subjects and a line for each change. Lines start with lead, mark formats
// the mark of a change that breaks users, and value a value.
func (e entry) write(b *strings.Builder, lead, mark string, value func(string) string) {
	about := e.about.write(value)
	if len(e.lines) > 1 && about != "" {
		fmt.Fprintf(b, "%s%s:\n", lead, about)
	}
	for _, l := range e.lines {
		text := l.text.write(value)
		switch {
		case about != "" && len(e.lines) == 1:
			text = about + ": " + text
		case about != "":
			b.WriteString("  ")
		}
		if l.breaks > Widens {
			text = fmt.Sprintf(mark, l.mark()) + text
		}
		fmt.Fprintf(b, "%s%s\n", lead, text)
	}
}

// line is one change of all subjects of its entry.
type line struct {
	text   phrase
	breaks Narrowing
}

// mark is the mark of a change that breaks users, in all formats.
func (l line) mark() string {
	return [...]string{Widens: "", Perhaps: "May break", Narrows: "Breaking"}[l.breaks]
}

// outline returns the description of a difference in its order: changes that break users come first. A change that many
// subjects, places or fields share is one line.
func (d *Difference) outline() []chapter {
	notes := d.notes()
	slices.SortStableFunc(notes, func(a, b note) int { return b.weight() - a.weight() })
	var chapters []chapter
	for _, s := range []*section{notCompared, upgradeNotes, variables, flavors, api, permissions, flags, imageNames, webhooks, series, otherObjects, statusLimits, definitionText, otherFiles} {
		var own []note
		for _, n := range notes {
			if s == n.of && !n.forUpgrade() || s == upgradeNotes && n.forUpgrade() {
				own = append(own, n)
			}
		}
		if len(own) > 0 {
			chapters = append(chapters, chapter{s, entriesOf(own)})
		}
	}
	return chapters
}

// shared is a note with all the subjects, places and fields to which it applies.
type shared struct {
	note
	subjects, places, fields []string
}

// entriesOf groups notes: first those that differ only in their places, then those that differ only in their subjects, so
// that each subject has the change in each place, then those that differ only in their fields.
func entriesOf(notes []note) []entry {
	var all []*shared
	for _, n := range notes {
		all = append(all, &shared{n, []string{n.subject}, []string{n.place}, []string{n.field}})
	}
	all = merge(all, func(s *shared) string { return s.key(s.subject, s.field) }, func(to, from *shared) {
		to.places = append(to.places, without(from.places, to.places)...)
	})
	all = merge(all, func(s *shared) string { return s.key(compact(s.places), s.field) }, func(to, from *shared) {
		to.subjects = append(to.subjects, without(from.subjects, to.subjects)...)
	})
	all = merge(all, func(s *shared) string { return s.key(compact(s.subjects), compact(s.places)) }, func(to, from *shared) {
		to.fields = append(to.fields, without(from.fields, to.fields)...)
	})
	var entries []entry
	at := map[string]int{}
	for _, s := range all {
		key := fmt.Sprint(s.of.title, compact(s.subjects), compact(s.places), s.weight() == weightOfLimits)
		i, ok := at[key]
		if !ok {
			i = len(entries)
			at[key] = i
			entries = append(entries, entry{about: s.about()})
		}
		entries[i].lines = append(entries[i].lines, s.line())
	}
	return entries
}

// mostFields is the number of fields on a line; notes that are too long are cut at the end of a line.
const mostFields = 20

// merge joins the items with the same key, in the order of the first ones.
func merge(items []*shared, key func(*shared) string, join func(to, from *shared)) []*shared {
	first := map[string]*shared{}
	var left []*shared
	for _, item := range items {
		k := key(item)
		if first[k] == nil {
			first[k] = item
			left = append(left, item)
			continue
		}
		join(first[k], item)
		if len(first[k].fields) >= mostFields {
			delete(first, k)
		}
	}
	return left
}

// key identifies a note, apart from the given texts.
func (s *shared) key(apart ...string) string {
	return compact([]any{s.of.group, s.of.title, s.text.words, s.text.values, s.breaks, apart})
}

// about names the subjects and places.
func (s *shared) about() phrase {
	subjects, places := without(s.subjects, []string{""}), without(s.places, []string{""})
	switch {
	case len(subjects) == 0 && len(places) == 0:
		return phrase{}
	case len(places) == 0:
		return phrase{"%s", [][]string{subjects}}
	case len(subjects) == 0:
		return phrase{"%s", [][]string{places}}
	}
	return phrase{"%s" + s.of.in + "%s", [][]string{subjects, places}}
}

// line describes the change with its fields.
func (s *shared) line() line {
	fields := without(s.fields, []string{""})
	if len(fields) == 0 {
		return line{s.text, s.breaks}
	}
	return line{phrase{"%s: " + s.text.words, append([][]string{fields}, s.text.values...)}, s.breaks}
}
