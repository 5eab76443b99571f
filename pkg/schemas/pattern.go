package schemas

import (
	"regexp/syntax"
	"strings"
	"unicode"
)

// maxPatternText is the maximum length of a text from a pattern.
const maxPatternText = 1000

// textOfPattern returns a text that a regular expression is likely to match: the shortest, or one in which optional
// parts occur once. It returns false if the pattern can't be read or is too complex.
func textOfPattern(pattern string, optional bool) (string, bool) {
	expression, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "", false
	}
	var b strings.Builder
	ok := writeMatch(&b, expression.Simplify(), optional)
	return b.String(), ok
}

// writeMatch writes a text that an expression matches. It returns false if no short one exists.
func writeMatch(b *strings.Builder, e *syntax.Regexp, optional bool) bool {
	if b.Len() > maxPatternText {
		return false
	}
	switch e.Op {
	case syntax.OpNoMatch:
		return false
	case syntax.OpLiteral:
		b.WriteString(string(e.Rune))
	case syntax.OpCharClass:
		r, ok := classRune(e.Rune)
		b.WriteRune(r)
		return ok
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('x')
	case syntax.OpStar, syntax.OpQuest:
		return !optional || writeMatch(b, e.Sub[0], optional)
	case syntax.OpAlternate, syntax.OpCapture, syntax.OpPlus:
		return writeMatch(b, e.Sub[0], optional)
	case syntax.OpConcat:
		for _, sub := range e.Sub {
			if !writeMatch(b, sub, optional) {
				return false
			}
		}
	}
	return true // what is left matches the empty text
}

// classRune returns a character of a class, preferably a letter or digit.
func classRune(ranges []rune) (rune, bool) {
	for _, wanted := range "ax0A-_./:" {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= wanted && wanted <= ranges[i+1] {
				return wanted, true
			}
		}
	}
	if len(ranges) == 0 || !unicode.IsPrint(ranges[0]) {
		return ' ', false
	}
	return ranges[0], true
}
