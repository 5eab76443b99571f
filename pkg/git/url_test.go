package git

import "testing"

// TestWebURL checks that URLs have no credentials and no local paths, and that git's forms for one repository have
// one URL.
func TestWebURL(t *testing.T) {
	for remote, want := range map[string]string{
		"https://github.com/acme/capl":                    "https://github.com/acme/capl",
		"https://github.com/acme/capl.git":                "https://github.com/acme/capl",
		"https://user:secret@github.com/acme/capl.git/":   "https://github.com/acme/capl",
		"https://git.example.com:8443/a/b/c.git?x=secret": "https://git.example.com:8443/a/b/c",
		"http://git.example.com:3000/acme/capl":           "http://git.example.com:3000/acme/capl",
		"git@github.com:acme/capl.git":                    "https://github.com/acme/capl",
		"github.com:acme/capl":                            "https://github.com/acme/capl",
		"git@git.example.com:/srv/capl.git":               "https://git.example.com/srv/capl",
		"ssh://git@git.example.com:2222/acme/capl.git":    "https://git.example.com/acme/capl",
		"git://git.example.com/acme/capl":                 "https://git.example.com/acme/capl",
		"/srv/git/capl.git":                               "",
		"../capl":                                         "",
		`C:\git\capl`:                                     "",
		"C:/git/capl":                                     "",
		"file:///srv/git/capl.git":                        "",
		"ext::sh -c secret":                               "",
		"https://github.com/":                             "",
		"":                                                "",
	} {
		if got := webURL(remote); got != want {
			t.Errorf("%q: got %q, want %q", remote, got, want)
		}
	}
}
