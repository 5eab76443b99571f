package move

import (
	"bytes"
	"errors"
)

// errJSON says that a text isn't JSON, as far as it was looked at.
var errJSON = errors.New("the JSON is broken or truncated")

// skimJSON writes a value of JSON with the fields to keep of it, or of the items of a list, and returns
// what comes after it. nil keeps all. What it passes over is looked at only to find where it ends: only
// a parser would know whether it is JSON.
func skimJSON(to *bytes.Buffer, text []byte, keep fields) ([]byte, error) {
	text = skipSpace(text)
	if len(text) == 0 {
		return nil, errJSON
	}
	if keep == nil || text[0] != '{' && text[0] != '[' {
		rest, err := skipJSON(text)
		if err == nil {
			to.Write(text[:len(text)-len(rest)])
		}
		return rest, err
	}
	open := text[0]
	shut := open + 2 // of braces and of brackets alike
	to.WriteByte(open)
	text = skipSpace(text[1:])
	for written := false; len(text) > 0 && text[0] != shut; {
		rest, wrote, err := skimMember(to, text, open == '{', keep, written)
		if err != nil {
			return nil, err
		}
		written = written || wrote
		if text = skipSpace(rest); len(text) > 0 && text[0] == ',' {
			if text = skipSpace(text[1:]); len(text) == 0 || text[0] == shut {
				return nil, errJSON
			}
		} else if len(text) > 0 && text[0] != shut {
			return nil, errJSON
		}
	}
	if len(text) == 0 {
		return nil, errJSON
	}
	to.WriteByte(shut)
	return text[1:], nil
}

// skimMember writes a field of an object if it is one to keep, or an item of a list, after a comma
// where one was written before. It returns what comes after it, and whether it was written.
func skimMember(to *bytes.Buffer, text []byte, named bool, keep fields, comma bool) ([]byte, bool, error) {
	below, wanted := keep, true
	var name []byte
	if named {
		rest, err := skipString(text)
		if err != nil {
			return nil, false, err
		}
		name = text[:len(text)-len(rest)]
		text = skipSpace(rest)
		if len(text) == 0 || text[0] != ':' {
			return nil, false, errJSON
		}
		text = text[1:]
		below, wanted = keep[string(name[1:len(name)-1])]
	}
	if !wanted {
		rest, err := skipJSON(skipSpace(text))
		return rest, false, err
	}
	if comma {
		to.WriteByte(',')
	}
	if named {
		to.Write(name)
		to.WriteByte(':')
	}
	rest, err := skimJSON(to, text, below)
	return rest, true, err
}

// skipSpace returns what comes after white space.
func skipSpace(text []byte) []byte {
	for i, c := range text {
		if c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return text[i:]
		}
	}
	return nil
}

// skipString returns what comes after the string that a text begins with.
func skipString(text []byte) ([]byte, error) {
	if len(text) == 0 || text[0] != '"' {
		return nil, errJSON
	}
	for at := 1; ; {
		end := bytes.IndexByte(text[at:], '"')
		if end < 0 {
			return nil, errJSON
		}
		end += at
		slashes := 0
		for text[end-1-slashes] == '\\' { // the opening quote ends it
			slashes++
		}
		if at = end + 1; slashes%2 == 0 {
			return text[at:], nil
		}
	}
}

// skipJSON returns what comes after the value that a text begins with.
func skipJSON(text []byte) ([]byte, error) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			rest, err := skipString(text[i:])
			if err != nil {
				return nil, err
			}
			i = len(text) - len(rest) - 1
			if depth == 0 {
				return rest, nil
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // what it belongs to ends, and with it a number or a word
				return text[i:], wordBefore(i)
			}
			if depth--; depth == 0 {
				return text[i+1:], nil
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return text[i:], wordBefore(i)
			}
		}
	}
	if depth > 0 {
		return nil, errJSON
	}
	return nil, wordBefore(len(text))
}

// wordBefore says whether there was something before a place in a text.
func wordBefore(at int) error {
	if at == 0 {
		return errJSON
	}
	return nil
}
