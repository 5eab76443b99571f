package draw

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

// look is the appearance of objects with a fate. Colour is never the only sign: each fate has a marker, a label, and a
// line with its own width or dashes.
type look struct {
	fate move.Fate
	// class is the name of the fate in styles; label and marker are for people.
	class, label, marker, legend string
	// light and dark are for the two backgrounds.
	light, dark colors
	// width is the width of the line in pixels, and dashes is its stroke-dasharray in SVG.
	width  string
	dashes string
}

type colors struct{ line, fill string }

// looks has a look for each fate. Blue, green and red are distinguishable for colour-blind people: they are from the
// palette of Okabe and Ito, except for a darker red.
var looks = []look{
	{
		move.FateMoved, "moved", "moved", "→", "moved: created in the target, deleted from the source",
		colors{"#0072b2", "#eef6fb"}, colors{"#56b4e9", "#10293a"}, "1.5", "",
	},
	{
		move.FateCopied, "copied", "copied", "=", "copied: created in the target, and kept in the source",
		colors{"#00735a", "#e9f6f1"}, colors{"#2fc59a", "#0d2e25"}, "1.5", "8 3",
	},
	{
		move.FateLeft, "left", "LEFT BEHIND", "×", "left behind: not in the target",
		colors{"#c1121f", "#fde8e8"}, colors{"#ff6b5e", "#471313"}, "3.5", "",
	},
	{
		move.FateApart, "apart", "apart", "·", "apart: has nothing to do with the move",
		colors{"#6b6b6b", "#f4f4f4"}, colors{"#a0a0a0", "#24272c"}, "1", "4 3",
	},
	{
		move.FateAbsent, "absent", "not read", "?", "not read: only named as an owner",
		colors{"#6b6b6b", "#ffffff"}, colors{"#a0a0a0", "#14171c"}, "1.5", "1 3",
	},
}

// Paper and ink of the two backgrounds.
const (
	lightPaper, lightInk, lightFaint = "#ffffff", "#1b1b1b", "#8a8a8a"
	darkPaper, darkInk, darkFaint    = "#14171c", "#ececec", "#8f8f8f"
)

// The colour of a cycle of owners, and the texts of the legend for lines.
const (
	lightRing, darkRing = "#b45309", "#fbbf24"
	ringLegend          = "in a cycle of owners"
	softLegend          = "linked by clusterctl, without an owner reference"
	hardLegend          = "owner above, what it owns below"
)

// lookOf returns the look of a fate.
func lookOf(fate move.Fate) look {
	for _, l := range looks {
		if l.fate == fate {
			return l
		}
	}
	return looks[len(looks)-1]
}

// printable replaces unprintable characters by their numbers: names may be hostile, and control characters could change
// how the rest is shown.
func printable(text string) string {
	hidden := func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if hidden(r) {
			fmt.Fprintf(&b, "<U+%04X>", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// cells returns how many columns of a monospaced font a text takes. Hangul and all characters from U+2E80 on count as
// wide, although a few of them are not.
func cells(text string) int {
	n := 0
	for _, r := range text {
		n += cell(r)
	}
	return n
}

func cell(r rune) int {
	if r >= 0x1100 && r < 0x1200 || r >= 0x2e80 {
		return 2
	}
	return 1
}

// shorten removes the middle of a text that takes more than the given columns: names often differ at their ends.
func shorten(text string, columns int) string {
	if cells(text) <= columns {
		return text
	}
	runes := []rune(text)
	head, tail := 0, len(runes)
	used := 1 // for the dots
	for head < tail {
		if next := cell(runes[head]); used+next <= columns {
			used += next
			head++
		} else {
			break
		}
		if head < tail && used+cell(runes[tail-1]) <= columns {
			tail--
			used += cell(runes[tail])
		}
	}
	return string(runes[:head]) + "…" + string(runes[tail:])
}
