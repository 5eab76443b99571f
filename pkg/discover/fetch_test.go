package discover

import "testing"

func TestHostOf(t *testing.T) {
	for base, want := range map[string]string{
		"https://example.com/x.yaml":            "example.com:443",
		"http://example.com:8080/x.yaml":        "example.com:8080",
		"git::https://example.com/x/y?ref=v1":   "example.com:443",
		"ssh://git@example.com/x/y?ref=v1":      "example.com:22",
		"git@example.com:x/y?ref=v1":            "example.com:22",
		"github.com/x/y//config/default?ref=v1": "github.com:443",
		"file:///x/y//config?ref=main":          "",
		"https://[::1]:99/x":                    "[::1]:99",
		"https://exa mple.com/x.yaml":           "",
	} {
		if got := hostOf(base); got != want {
			t.Errorf("hostOf(%q) = %q, want %q", base, got, want)
		}
	}
}
