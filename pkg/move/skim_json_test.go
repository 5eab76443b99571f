package move

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var jsonToKeep = fields{"a": nil, "b": {"c": nil, "d": {"e": nil}}}

func TestSkimJSON(t *testing.T) {
	for _, c := range []struct{ text, want, rest string }{
		{text: `{}`, want: `{}`},
		{text: ` { "x" : 1 , "a" : [1, {"y": 2}] } rest`, want: `{"a":[1, {"y": 2}]}`, rest: " rest"},
		{text: `{"b":{"x":"}","c":"\"}\\","d":[{"e":1,"f":2},{"f":"]"},3]},"a":null}`, want: `{"b":{"c":"\"}\\","d":[{"e":1},{},3]},"a":null}`},
		{text: `[{"a":1},{"b":true,"z":[[],{}]}]`, want: `[{"a":1},{"b":true}]`},
		{text: `12 `, want: `12`, rest: " "},
	} {
		var got bytes.Buffer
		rest, err := skimJSON(&got, []byte(c.text), jsonToKeep)
		if err != nil || got.String() != c.want || string(rest) != c.rest {
			t.Errorf("%s: %q with the rest %q and error %v, want %q and %q", c.text, got.String(), rest, err, c.want, c.rest)
		}
	}
	for _, broken := range []string{``, ` `, `{`, `{"a"`, `{"a":`, `{"a":}`, `{"a" 1}`, `{"a":1,}`, `{"a":1 "b":2}`, `{"x":{"y":1}`, `{a:1}`, `["a`, `{"a":"\"}`, `{"x":,"a":1}`, `[1`, `[,1]`} {
		if rest, err := skimJSON(&bytes.Buffer{}, []byte(broken), jsonToKeep); err == nil {
			t.Errorf("%s: no error, and the rest is %q", broken, rest)
		}
	}
}

// prunedTo is what skimJSON should leave of a value.
func prunedTo(value any, keep fields) any {
	switch value := value.(type) {
	case map[string]any:
		if keep == nil {
			return value
		}
		pruned := map[string]any{}
		for name, v := range value {
			if below, ok := keep[name]; ok {
				pruned[name] = prunedTo(v, below)
			}
		}
		return pruned
	case []any:
		pruned := make([]any, 0, len(value))
		for _, v := range value {
			pruned = append(pruned, prunedTo(v, keep))
		}
		return pruned
	}
	return value
}

// FuzzSkimJSON: of JSON, what is kept is what a parser would keep; of anything else, there is no panic.
func FuzzSkimJSON(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":{"c":"\\\"","d":[{"e":{}}]},"x":"}"}`, `[{"a":"é"},[],-1.5e3,null]`, `{"a":`, `"\\`, `{"b":{"b":[]}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got bytes.Buffer
		rest, err := skimJSON(&got, text, jsonToKeep)
		var parsed any
		if json.Unmarshal(text, &parsed) != nil || bytes.ContainsRune(text, '\\') {
			return // not JSON, or a field may be spelt with escapes, which Kubernetes never does
		}
		if err != nil || len(skipSpace(rest)) > 0 {
			t.Fatalf("%s: error %v, rest %q", text, err, rest)
		}
		var skimmed any
		if err := json.Unmarshal(got.Bytes(), &skimmed); err != nil {
			t.Fatalf("%s became %s: %v", text, got.Bytes(), err)
		}
		if diff := cmp.Diff(prunedTo(parsed, jsonToKeep), skimmed); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	})
}
