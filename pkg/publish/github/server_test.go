package github

import (
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
)

// TestServers checks the URLs of the API of a GitHub server, and the hosts that get the token.
func TestServers(t *testing.T) {
	for _, test := range []struct{ server, api, url, wantAPI, wantUploads string }{
		{"", "", "https://github.com/acme/capl", "https://api.github.com/", "https://uploads.github.com/"},
		{"https://github.com", "https://api.github.com", "https://github.com/acme/capl", "https://api.github.com/", "https://uploads.github.com/"},
		{"https://ghe.example.com", "https://ghe.example.com/api/v3", "https://ghe.example.com/a/b", "https://ghe.example.com/api/v3/", "https://ghe.example.com/api/uploads/"},
		{"https://ghe.example.com", "", "https://ghe.example.com/a/b", "https://ghe.example.com/api/v3/", "https://ghe.example.com/api/uploads/"},
		{"https://acme.ghe.com", "https://api.acme.ghe.com", "https://acme.ghe.com/a/b", "https://api.acme.ghe.com/", "https://uploads.acme.ghe.com/"},
		{"https://acme.ghe.com", "", "https://acme.ghe.com/a/b", "https://api.acme.ghe.com/", "https://uploads.acme.ghe.com/"},
		{"https://ghe.example.com", "https://ghe.example.com/api/v3", "https://github.com/acme/capl", "https://api.github.com/", "https://uploads.github.com/"},
	} {
		t.Setenv("GITHUB_SERVER_URL", test.server)
		t.Setenv("GITHUB_API_URL", test.api)
		t.Setenv("GITHUB_TOKEN", "ghs_TopSecretOfTheTests")
		opened, _, err := open(test.url, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := opened.(*repo)
		if s.server.api.String() != test.wantAPI || s.server.uploads.String() != test.wantUploads {
			t.Errorf("%s on %s: the API is %s and %s", test.url, test.server, s.server.api, s.server.uploads)
		}
		// The token of one server is not used for another.
		if own := !strings.Contains(test.server, "ghe") || !strings.HasPrefix(test.url, "https://github.com"); (s.token != "") != own {
			t.Errorf("%s on %s: has a token: %v, want %v", test.url, test.server, s.token != "", own)
		}
	}
}

// TestTokens checks that the variable of Actions takes precedence over the one of GitHub's command.
func TestTokens(t *testing.T) {
	const own = "ghs_TopSecretOfTheTests"
	for name, test := range map[string]struct{ actions, command, want string }{
		"both":      {own, "other", own},
		"its own":   {"", own, own},
		"no tokens": {"", "", ""},
	} {
		t.Setenv("GITHUB_TOKEN", test.actions)
		t.Setenv("GH_TOKEN", test.command)
		s, _, err := open("https://github.com/acme/capl", store.Options{})
		if err != nil || s.(*repo).token != test.want {
			t.Errorf("%s: open takes the wrong token: %v", name, err)
		}
	}
}
