package publish

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/githubserver"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
)

// keyPair writes a key pair and returns the paths of its files.
func keyPair(t *testing.T, private crypto.Signer) (privateFile, publicFile string) {
	t.Helper()
	dir := t.TempDir()
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	privateFile, publicFile = filepath.Join(dir, "key"), filepath.Join(dir, "key.pub")
	write(t, privateFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	write(t, publicFile, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))
	return privateFile, publicFile
}

// TestVerify publishes and verifies releases with and without signatures, some of them changed afterwards.
func TestVerify(t *testing.T) {
	_, ed25519Key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecdsaKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ed25519File, ed25519Public := keyPair(t, ed25519Key)
	ecdsaFile, ecdsaPublic := keyPair(t, ecdsaKey)
	replaceAsset := func(name string, change func([]byte) []byte) func([]*githubserver.Asset) []*githubserver.Asset {
		return func(assets []*githubserver.Asset) []*githubserver.Asset {
			for _, a := range assets {
				if a.Name == name {
					a.Data = change(slices.Clone(a.Data))
				}
			}
			return assets
		}
	}
	without := func(name string) func([]*githubserver.Asset) []*githubserver.Asset {
		return func(assets []*githubserver.Asset) []*githubserver.Asset {
			return slices.DeleteFunc(assets, func(a *githubserver.Asset) bool { return a.Name == name })
		}
	}
	flip := func(data []byte) []byte { data[len(data)/2] ^= 1; return data }
	for name, test := range map[string]struct {
		sign, verify string
		change       func([]*githubserver.Asset) []*githubserver.Asset
		problem      string
		note         string
	}{
		"signed, Ed25519":              {sign: ed25519File, verify: ed25519Public, note: "built from the commit " + someCommit},
		"signed, ECDSA":                {sign: ecdsaFile, verify: ecdsaPublic, note: "built from the commit " + someCommit},
		"signed, no key to verify":     {sign: ed25519File, note: "built from the commit " + someCommit},
		"not signed, no key to verify": {note: "built from the commit " + someCommit},
		"not signed, a key to verify":  {verify: ed25519Public, problem: "none of its signatures is by the key"},
		"signed by another key":        {sign: ecdsaFile, verify: ed25519Public, problem: "none of its signatures is by the key"},
		"a changed file":               {change: replaceAsset("NOTES.md", flip), problem: "SHA256SUMS names other bytes for NOTES.md\nprovenance.intoto.jsonl names other bytes for NOTES.md"},
		"a changed statement":          {sign: ed25519File, verify: ed25519Public, change: replaceAsset(store.ProvenanceFile, flip), problem: store.ProvenanceFile},
		"another version's provenance": {change: replaceAsset(store.ProvenanceFile, func(d []byte) []byte { return []byte(strings.ReplaceAll(string(d), "v0.1.0", "v0.1.1")) }), problem: `has the version "v0.1.1"`},
		"no provenance":                {change: without(store.ProvenanceFile), note: "has no file provenance.intoto.jsonl"},
		"no provenance, a key":         {verify: ed25519Public, change: without(store.ProvenanceFile), problem: "there is no provenance.intoto.jsonl to verify"},
		"no checksums":                 {change: without(store.ChecksumsFile), note: "has no file SHA256SUMS"},
		"broken checksums":             {change: replaceAsset(store.ChecksumsFile, func([]byte) []byte { return []byte("x") }), problem: "SHA256SUMS:1"},
		"not in the checksums":         {change: replaceAsset(store.ChecksumsFile, func(d []byte) []byte { return d[:slices.Index(d, '\n')+1] }), problem: "does not name metadata.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGitHubWorld(t)
			w.published(t, func(o *Options) { o.SignKey = test.sign }, someLabelled("v0.1.0"))
			if test.change != nil {
				published := *w.server.Releases()[0]
				w = newGitHubWorld(t)
				published.Assets = test.change(published.Assets)
				w.server.Add(published)
			}
			_, opts := w.process(nil)
			v, err := Verify(t.Context(), githubURL+"/releases/v0.1.0/infrastructure-components.yaml", test.verify, opts)
			if err != nil {
				t.Fatal(err)
			}
			var problems []string
			for _, p := range v.Problems {
				problems = append(problems, p.Error())
			}
			all := strings.Join(problems, "\n")
			for want := range strings.SplitSeq(test.problem, "\n") {
				if !strings.Contains(all, want) || (test.problem == "") != (all == "") {
					t.Errorf("the problems are %q, want %q", all, want)
				}
			}
			if !strings.Contains(strings.Join(v.Notes, "\n"), test.note) {
				t.Errorf("the notes are %q, want %q", v.Notes, test.note)
			}
		})
	}
}

func FuzzParseChecksums(f *testing.F) {
	f.Add((&store.Version{Files: someRelease(libvirt, "v0.1.0", "").Files}).Checksums().Data)
	f.Fuzz(func(t *testing.T, data []byte) {
		sums, err := store.ParseChecksums(data)
		if err == nil && len(data) > 0 && len(sums) == 0 {
			t.Error("no sums and no error")
		}
	})
}
