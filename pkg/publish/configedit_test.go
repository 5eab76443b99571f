package publish

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

var (
	libvirtEntry = store.Entry{Name: "libvirt", Type: libvirt.Type, URL: "file:///r/infrastructure-libvirt/latest/infrastructure-components.yaml"}
	microEntry   = store.Entry{Name: "micro", Type: micro.Type, URL: "file:///r/bootstrap-micro/latest/bootstrap-components.yaml"}
)

const libvirtBlock = `- name: "libvirt"
  url: "file:///r/infrastructure-libvirt/latest/infrastructure-components.yaml"
  type: "InfrastructureProvider"
`

// indented returns the block of an entry, indented by n columns.
func indented(n int, block string) string {
	indent := strings.Repeat(" ", n)
	return indent + strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n", "\n"+indent) + "\n"
}

func TestEditProviders(t *testing.T) {
	const other = "- name: other\n  url: https://example.com/x\n  type: CoreProvider\n"
	flow := `{name: "libvirt", url: "` + libvirtEntry.URL + `", type: "InfrastructureProvider"}`
	ours := func(url string) string {
		return "providers:\n- name: libvirt # ours\n  url: " + url + " # here\n  type: InfrastructureProvider\nimages: {}\n"
	}
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "providers:\n" + indented(2, libvirtBlock)},
		{"comment only", "# mine\n", "# mine\nproviders:\n" + indented(2, libvirtBlock)},
		{"document mark only", "---\n", "---\nproviders:\n" + indented(2, libvirtBlock)},
		{"other keys", "a: 1 # one\n\n# end\n", "a: 1 # one\n\n# end\nproviders:\n" + indented(2, libvirtBlock)},
		{"no newline at the end", "a: 1", "a: 1\nproviders:\n" + strings.TrimSuffix(indented(2, libvirtBlock), "\n")},
		{"end mark", "a: 1\n...\n", "a: 1\nproviders:\n" + indented(2, libvirtBlock) + "...\n"},
		{"indented document", "  a: 1\n", "  a: 1\n  providers:\n" + indented(4, libvirtBlock)},
		{"block text last", "a: |+\n  x\n\n", "a: |+\n  x\n\nproviders:\n" + indented(2, libvirtBlock)},
		{"no value", "providers: # none yet\nb: 2\n", "providers: # none yet\n" + indented(2, libvirtBlock) + "b: 2\n"},
		{"no value at the end", "providers:", "providers:\n" + strings.TrimSuffix(indented(2, libvirtBlock), "\n")},
		{"null", "providers: null # none\nb: 2\n", "providers:\n" + strings.TrimSuffix(indented(2, libvirtBlock), "\n") + " # none\nb: 2\n"},
		{"empty list", "providers: []\nb: 2\n", "providers:\n" + indented(2, libvirtBlock) + "b: 2\n"},
		{"upper case", "Providers:\n" + other, "Providers:\n" + other + libvirtBlock},
		{"another entry", "providers:\n" + other, "providers:\n" + other + libvirtBlock},
		{"another entry, indented", "providers:\n    # head\n" + indented(4, other) + "\n# images\nimages: {}\n", "providers:\n    # head\n" + indented(4, other) + indented(4, libvirtBlock) + "\n# images\nimages: {}\n"},
		{"comments behind the last entry", "providers:\n" + indented(2, other) + "    # of other\n  # of the list\n# end\nb: 2\n", "providers:\n" + indented(2, other) + "    # of other\n" + indented(2, libvirtBlock) + "  # of the list\n# end\nb: 2\n"},
		{"no newline behind the last entry", "providers:\n" + strings.TrimSuffix(other, "\n"), "providers:\n" + other + strings.TrimSuffix(libvirtBlock, "\n")},
		{"the style of the entry before", "providers:\n-   type:  CoreProvider\n    name: 'x' # c\n    url: y\n", "providers:\n-   type:  CoreProvider\n    name: 'x' # c\n    url: y\n-   type:  \"InfrastructureProvider\"\n    name: 'libvirt'\n    url: \"" + libvirtEntry.URL + "\"\n"},
		{"text over lines last", "providers:\n- type: CoreProvider\n  url: x\n  name: >-\n    a\n    # b\n\nb: 2\n", "providers:\n- type: CoreProvider\n  url: x\n  name: >-\n    a\n    # b\n" + libvirtBlock + "\nb: 2\n"},
		{"CRLF", "a: 1\r\nproviders:\r\n- name: x\r\n", "a: 1\r\nproviders:\r\n- name: x\r\n" + strings.ReplaceAll(libvirtBlock, "\n", "\r\n")},
		{"byte order mark", "\uFEFFproviders: [{name: x}]\n", "\uFEFFproviders: [" + flow + ", {name: x}]\n"},
		{"list in a line", "providers: [ {name: x} ] # c\n", "providers: [" + flow + ",  {name: x} ] # c\n"},
		{"document in a line", `{a: 1}`, `{providers: [` + flow + `], a: 1}`},
		{"empty document in a line", "{}\n", "{providers: [" + flow + "]}\n"},
		{"all in a line", `{"providers": []}`, `{"providers": [` + flow + `]}`},
		{"anchor of the list", "providers: &p [{name: x}]\ncopy: *p\n", ""},
		{"alias as the list", "list: &p\n- name: x\nproviders: *p\n", ""},
		{"merge key", "base: &b {providers: [{name: x}]}\n<<: *b\n", ""},
		{"anchors elsewhere", "a: &a 1\nproviders:\n- name: x\n  url: *a\nb: *a\n", "a: &a 1\nproviders:\n- name: x\n  url: *a\n" + libvirtBlock + "b: *a\n"},
		{"right", ours(libvirtEntry.URL), ours(libvirtEntry.URL)},
		{"right, as a path", ours("/r/infrastructure-libvirt/latest/infrastructure-components.yaml"), ours("/r/infrastructure-libvirt/latest/infrastructure-components.yaml")},
		{"right, by a variable", ours("${NO_SUCH_VARIABLE:=/r}/infrastructure-libvirt/latest/infrastructure-components.yaml"), ours("${NO_SUCH_VARIABLE:=/r}/infrastructure-libvirt/latest/infrastructure-components.yaml")},
		{"wrong", ours("https://example.com/x#y"), ours(`"` + libvirtEntry.URL + `"`)},
		{"wrong, quoted", ours(`"a\"b"`), ours(`"` + libvirtEntry.URL + `"`)},
		{"wrong, single quotes", ours(`'it''s'`), ours(`"` + libvirtEntry.URL + `"`)},
		{"wrong, over lines", ours("\"a\n    b\""), ours(`"` + libvirtEntry.URL + `"`)},
		{"wrong, an alias", "u: &u x\n" + ours("*u"), "u: &u x\n" + ours(`"`+libvirtEntry.URL+`"`)},
		{"wrong, an anchor", ours("&u x") + "u: *u\n", ""},
		{"wrong, in an entry that is used elsewhere", "providers:\n- &e {name: libvirt, type: InfrastructureProvider, url: x}\ncopy: *e\n", ""},
		{"wrong, with a tag", ours("!!str x"), ""},
		{"wrong, from a merge key", "base: &b {url: x}\nproviders:\n- <<: *b\n  name: libvirt\n  type: InfrastructureProvider\n", ""},
		{"wrong, a block", "providers:\n- name: libvirt\n  type: InfrastructureProvider\n  url: |-\n    x\n", ""},
		{"wrong, wide characters before", "providers: [{name: libvirt, type: InfrastructureProvider, ü: 'ü€😀', url: x}]", "providers: [{name: libvirt, type: InfrastructureProvider, ü: 'ü€😀', url: \"" + libvirtEntry.URL + "\"}]"},
		{"no URL", "providers:\n- name: libvirt\n  type: InfrastructureProvider\n", ""},
		{"same name, another type", "providers:\n- name: libvirt\n  url: x\n  type: AddonProvider\n", "providers:\n- name: libvirt\n  url: x\n  type: AddonProvider\n" + libvirtBlock},
		{"a provider twice", ours("x")[:len(ours("x"))-len("images: {}\n")] + "- {name: libvirt, url: y, type: InfrastructureProvider}\n", ours(`"` + libvirtEntry.URL + `"`)[:len(ours(`"`+libvirtEntry.URL+`"`))-len("images: {}\n")] + `- {name: libvirt, url: "` + libvirtEntry.URL + `", type: InfrastructureProvider}` + "\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, changed, err := editProviders(configFile, []byte(test.text), []store.Entry{libvirtEntry})
			if test.want == "" {
				if err == nil || !regexp.MustCompile(`^clusterctl.yaml:[1-9]`).MatchString(err.Error()) || !strings.Contains(err.Error(), "write these entries into it") || !strings.Contains(err.Error(), libvirtEntry.URL) {
					t.Fatalf("got %v, want advice to edit by hand\n%s", err, got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("edited (-want +got):\n%s", diff)
			}
			if (len(changed) > 0) != (test.text != string(got)) {
				t.Errorf("changed %v", changed)
			}
			again, changed, err := editProviders(configFile, got, []store.Entry{libvirtEntry})
			if err != nil || len(changed) > 0 || !bytes.Equal(again, got) {
				t.Errorf("the second edit changed the text: %v, %v\n%s", changed, err, again)
			}
		})
	}
}

func TestPublishRefusesConfig(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"no YAML", "a: [\nb: 1", "isn't valid YAML"},
		{"tab", "a:\n\tb: 1\n", "line 2"},
		{"not UTF-8", "a: \xff\n", "isn't UTF-8"},
		{"two documents", "a: 1\n---\nb: 1\n", "more than one document"},
		{"no mapping", "# c\n- a\n", ":2: the file isn't a mapping"},
		{"no mapping but null", "~\n", ":1: the file isn't a mapping"},
		{"no list", "a: 1\nproviders: {}\n", ":2: providers isn't a list"},
		{"text as list", "providers: none\n", ":1: providers isn't a list"},
		{"entry of text", "providers:\n- a\n", ":2: an entry of providers isn't a mapping"},
		{"key twice", "providers: []\n\nproviders: []\n", `:3: the key "providers" is already in line 1`},
		{"key twice but for case", "providers: []\nProviders: []\n", `:2: the key "Providers" is already in line 1`},
		{"deep key twice", "a:\n  b: 1\n  b: 2\n", `"b" already defined at line 2`},
		{"entry's key twice", "providers:\n- name: a\n  Name: b\n", `:3: the key "Name" is already in line 2`},
		{"unknown anchor", "a: *b\n", "unknown anchor"},
		{"list by alias", "l: &l []\nproviders: *l\n", ":2: the list of providers is written in a way"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, configFile), test.text)
			before := tree(t, root)
			_, err := open(t, root, Options{}).Publish(t.Context(), []*release.Release{someRelease(libvirt, "v0.1.0", "")})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), filepath.Join(root, configFile)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			sameTree(t, before, tree(t, root))
		})
	}
}

func TestPublishKeepsModeOfConfig(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, configFile)
	write(t, path, "SECRET: x\n")
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	publish(t, root, Options{}, someRelease(libvirt, "v0.1.0", ""))
	if got := tree(t, root)[configFile]; !strings.HasPrefix(got, "-rw------- SECRET: x\nproviders:") {
		t.Errorf("the file is %q", got)
	}
}

func TestPublishRefusesLinkedConfig(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "real.yaml"), "a: 1\n")
	if err := os.Symlink("real.yaml", filepath.Join(root, configFile)); err != nil {
		t.Fatal(err)
	}
	_, err := open(t, root, Options{}).Publish(t.Context(), []*release.Release{someRelease(libvirt, "v0.1.0", "")})
	if err == nil || !strings.Contains(err.Error(), "is a link") {
		t.Errorf("got %v, want an error about the link", err)
	}
}

func FuzzEditProviders(f *testing.F) {
	for _, seed := range []string{
		"", "a: 1", "providers:\n- name: x\n  url: y\n  type: z\n# end\nb: 1\n", "providers: []", "{providers: [{name: x}]}",
		"providers:\r\n- name: libvirt\r\n  type: InfrastructureProvider\r\n  url: 'x'\r\n", "\uFEFFa: &x 1\nproviders:\n- *x\n",
		"? providers\n: - name: libvirt\n    type: InfrastructureProvider\n    url: \"a\\\"b\"\n", "--- # c\nproviders: ~\n...\n",
		"providers: !!seq\n- !!map {name: libvirt, type: InfrastructureProvider, url: *u}\nu: &u x\n", "<<: {providers: [{name: x}]}\n",
		"a: |+\n  x\n\n\nproviders: null", "a: >\n  providers:\n  - x\n\u2028b: 1\n", "%YAML 1.1\n---\nproviders: [ # c\n]\n",
	} {
		f.Add([]byte(seed))
	}
	entries := []store.Entry{libvirtEntry, microEntry}
	f.Fuzz(func(t *testing.T, text []byte) {
		before, err := parseConfig(configFile, text)
		if err != nil {
			return
		}
		edited, changed, err := editProviders(configFile, text, entries)
		if err != nil {
			return
		}
		after, err := parseConfig(configFile, edited)
		if err != nil {
			t.Fatalf("the edited text does not parse: %v\n%q\n%q", err, text, edited)
		}
		if diff := cmp.Diff(before.otherValues(), after.otherValues()); diff != "" {
			t.Errorf("other keys changed (-before +after):\n%s", diff)
		}
		if len(after.items) < len(before.items) {
			t.Errorf("%d entries after the edit, %d before", len(after.items), len(before.items))
		}
		for _, entry := range entries {
			found := false
			for _, item := range after.items {
				found = found || item.name == entry.Name && item.kind == string(entry.Type) && sameRepository(item.url, entry.URL)
			}
			if !found {
				t.Errorf("%s is not in %q", entry, edited)
			}
		}
		for _, line := range bytes.Split(text, []byte("\n")) {
			if bytes.HasPrefix(line, []byte("#")) && len(changed) > 0 && !bytes.Contains(edited, line) {
				t.Errorf("the comment %q was removed:\n%q\n%q", line, text, edited)
			}
		}
		again, changed, err := editProviders(configFile, edited, entries)
		if err != nil || len(changed) > 0 || !bytes.Equal(again, edited) {
			t.Errorf("the second edit: %v %v\n%q\n%q", changed, err, edited, again)
		}
	})
}
