package provenance

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	someCommit     = "0123456789abcdef0123456789abcdef01234567"
	someRepository = "https://github.com/acme/capl"
)

var someFiles = []release.File{{Name: "a.yaml", Data: []byte("a")}, {Name: "metadata.yaml", Data: []byte("b")}}

func someSource() *release.Source {
	return &release.Source{Repository: someRepository, Commit: someCommit, Tool: "v0.3.0"}
}

// writePEM writes blocks to a file and returns its path.
func writePEM(t *testing.T, blocks ...*pem.Block) string {
	t.Helper()
	var text bytes.Buffer
	for _, b := range blocks {
		text.Write(pem.EncodeToMemory(b))
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// must returns a function that returns its first argument and fails the test on an error.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func pkcs8(t *testing.T, key any) *pem.Block {
	t.Helper()
	return &pem.Block{Type: "PRIVATE KEY", Bytes: must[[]byte](t)(x509.MarshalPKCS8PrivateKey(key))}
}

func sec1(t *testing.T, key *ecdsa.PrivateKey) *pem.Block {
	t.Helper()
	return &pem.Block{Type: "EC PRIVATE KEY", Bytes: must[[]byte](t)(x509.MarshalECPrivateKey(key))}
}

func public(t *testing.T, key crypto.Signer) *pem.Block {
	t.Helper()
	return &pem.Block{Type: "PUBLIC KEY", Bytes: must[[]byte](t)(x509.MarshalPKIXPublicKey(key.Public()))}
}

// plainVerifier verifies with Go's own library. It has no key ID, so that dsse uses SSH's fingerprint.
type plainVerifier struct{ key crypto.PublicKey }

func (v plainVerifier) KeyID() (string, error)   { return "", nil }
func (v plainVerifier) Public() crypto.PublicKey { return v.key }

func (v plainVerifier) Verify(_ context.Context, data, sig []byte) error {
	valid := false
	switch key := v.key.(type) {
	case ed25519.PublicKey:
		valid = ed25519.Verify(key, data, sig)
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			sum := sha256.Sum256(data)
			valid = ecdsa.VerifyASN1(key, sum[:], sig)
		case elliptic.P384():
			sum := sha512.Sum384(data)
			valid = ecdsa.VerifyASN1(key, sum[:], sig)
		case elliptic.P521():
			sum := sha512.Sum512(data)
			valid = ecdsa.VerifyASN1(key, sum[:], sig)
		}
	}
	if !valid {
		return errors.New("the signature is wrong")
	}
	return nil
}

// loadedVerifier returns the library's verifier of a public key, with the key ID that the library computes.
func loadedVerifier(t *testing.T, key crypto.Signer) dsse.Verifier {
	t.Helper()
	loaded := must[*signerverifier.SSLibKey](t)(signerverifier.LoadKey(pem.EncodeToMemory(public(t, key))))
	if loaded.KeyType == signerverifier.ED25519KeyType {
		return must[*signerverifier.ED25519SignerVerifier](t)(signerverifier.NewED25519SignerVerifierFromSSLibKey(loaded))
	}
	return must[*signerverifier.ECDSASignerVerifier](t)(signerverifier.NewECDSASignerVerifierFromSSLibKey(loaded))
}

// TestSignatures checks that independent verifiers and Check accept the signatures of each kind of key,
// with any key ID, and refuse other keys and changed payloads.
func TestSignatures(t *testing.T) {
	_, edward, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	curve := func(c elliptic.Curve) *ecdsa.PrivateKey {
		return must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(c, rand.Reader))
	}
	p256, p384, p521 := curve(elliptic.P256()), curve(elliptic.P384()), curve(elliptic.P521())
	parameters := &pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}}
	_, other, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		key, other crypto.Signer
		blocks     []*pem.Block
	}{
		"Ed25519":                      {edward, other, []*pem.Block{pkcs8(t, edward)}},
		"P-256":                        {p256, curve(elliptic.P256()), []*pem.Block{pkcs8(t, p256)}},
		"P-384":                        {p384, curve(elliptic.P384()), []*pem.Block{pkcs8(t, p384)}},
		"P-521":                        {p521, curve(elliptic.P521()), []*pem.Block{pkcs8(t, p521)}},
		"P-256, SEC1":                  {p256, other, []*pem.Block{sec1(t, p256)}},
		"P-384, SEC1":                  {p384, other, []*pem.Block{sec1(t, p384)}},
		"P-521, SEC1":                  {p521, other, []*pem.Block{sec1(t, p521)}},
		"P-256, SEC1, openssl ecparam": {p256, other, []*pem.Block{parameters, sec1(t, p256)}},
	} {
		t.Run(name, func(t *testing.T) {
			statement, err := New(t.Context(), "v0.1.0", someFiles, someSource(), writePEM(t, test.blocks...))
			if err != nil {
				t.Fatal(err)
			}
			var e dsse.Envelope
			if err := json.Unmarshal(statement.Data, &e); err != nil {
				t.Fatal(err)
			}
			changed := e
			changed.Payload = strings.Replace(e.Payload, e.Payload[40:42], "AA", 1)
			for kind, verifiers := range map[string][2]dsse.Verifier{
				"with the library's key ID": {loadedVerifier(t, test.key), loadedVerifier(t, test.other)},
				"with SSH's fingerprint":    {plainVerifier{test.key.Public()}, plainVerifier{test.other.Public()}},
			} {
				right := must[*dsse.EnvelopeVerifier](t)(dsse.NewEnvelopeVerifier(verifiers[0]))
				wrong := must[*dsse.EnvelopeVerifier](t)(dsse.NewEnvelopeVerifier(verifiers[1]))
				if _, err := right.Verify(t.Context(), &e); err != nil {
					t.Errorf("%s: %v", kind, err)
				}
				if _, err := wrong.Verify(t.Context(), &e); err == nil {
					t.Errorf("%s: another key is accepted", kind)
				}
				if _, err := right.Verify(t.Context(), &changed); err == nil {
					t.Errorf("%s: a changed payload is accepted", kind)
				}
			}
			keyFile, otherFile := writePEM(t, public(t, test.key)), writePEM(t, public(t, test.other))
			if claim, err := Check(t.Context(), statement.Data, "v0.1.0", someFiles, keyFile); err != nil || claim != (Claim{someRepository, someCommit}) {
				t.Errorf("Check = %v, %v", claim, err)
			}
			if _, err := Check(t.Context(), statement.Data, "v0.1.0", someFiles, otherFile); err == nil || !strings.Contains(err.Error(), "none of its signatures") {
				t.Errorf("another key: %v", err)
			}
			altered := must[[]byte](t)(json.Marshal(changed))
			if _, err := Check(t.Context(), altered, "v0.1.0", someFiles, keyFile); err == nil || !strings.Contains(err.Error(), "none of its signatures") {
				t.Errorf("a changed payload: %v", err)
			}
		})
	}
}

// TestForeignKeyID checks that the key ID doesn't matter, because it is only a hint.
func TestForeignKeyID(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	statement, err := New(t.Context(), "v0.1.0", someFiles, someSource(), writePEM(t, pkcs8(t, key)))
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Replace(statement.Data, []byte(`"keyid":""`), []byte(`"keyid":"a key of ours"`), 1)
	if bytes.Equal(text, statement.Data) {
		t.Fatalf("no key ID in %s", statement.Data)
	}
	if _, err := Check(t.Context(), text, "v0.1.0", someFiles, writePEM(t, public(t, key))); err != nil {
		t.Error(err)
	}
}

// TestStatement checks that the statement is valid by in-toto's own rules, has only the data of the source,
// and always has the same bytes.
func TestStatement(t *testing.T) {
	for name, test := range map[string]struct {
		source release.Source
		uri    string
	}{
		"all known":     {*someSource(), "git+" + someRepository},
		"no repository": {release.Source{Commit: someCommit}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			statement, err := New(t.Context(), "v0.1.0", someFiles, &test.source, "")
			if err != nil {
				t.Fatal(err)
			}
			if again, err := New(t.Context(), "v0.1.0", someFiles, &test.source, ""); err != nil || !bytes.Equal(statement.Data, again.Data) {
				t.Errorf("the second statement differs: %v\n%s\n%s", err, statement.Data, again.Data)
			}
			if bytes.Contains(statement.Data, []byte(`": `)) || bytes.Count(statement.Data, []byte("\n")) != 1 {
				t.Errorf("the statement has spaces or several lines: %s", statement.Data)
			}
			var s intoto.Statement
			if err := protojson.Unmarshal(statement.Data, &s); err != nil || s.Validate() != nil || len(s.Subject) != 2 {
				t.Fatalf("%v, %v: %s", err, s.Validate(), statement.Data)
			}
			var p slsa.Provenance
			if err := protojson.Unmarshal(must[[]byte](t)(protojson.Marshal(s.Predicate)), &p); err != nil || p.Validate() != nil {
				t.Fatalf("the predicate: %v, %v", err, p.Validate())
			}
			commit := p.BuildDefinition.ResolvedDependencies[0]
			if commit.Uri != test.uri || commit.Digest["gitCommit"] != someCommit || p.RunDetails.Builder.Version["clusterctl-release"] != test.source.Tool {
				t.Errorf("got %s", statement.Data)
			}
		})
	}
}

// TestKeys checks that the errors for unusable keys don't contain the key.
func TestKeys(t *testing.T) {
	const secret = "TopSecretBytes"
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey := must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 2048))
	for name, test := range map[string]struct{ file, want string }{
		"text":       {text, "not in the PEM format"},
		"missing":    {text + "x", "no such file"},
		"broken":     {writePEM(t, &pem.Block{Type: "PRIVATE KEY", Bytes: []byte(secret)}), "isn't a private key that can be read"},
		"public":     {writePEM(t, public(t, key)), "is a PUBLIC KEY, but a PRIVATE KEY is needed"},
		"mislabeled": {writePEM(t, &pem.Block{Type: "PRIVATE KEY", Bytes: public(t, key).Bytes}), "is a public key"},
		"encrypted":  {writePEM(t, &pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte(secret)}), "openssl pkey -in"},
		"RSA":        {writePEM(t, pkcs8(t, rsaKey)), "Ed25519 and ECDSA keys"},
	} {
		if err := CheckKey(test.file); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	statement, err := New(t.Context(), "v0.1.0", someFiles, someSource(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Check(t.Context(), statement.Data, "v0.1.0", someFiles, writePEM(t, pkcs8(t, key))); err == nil || !strings.Contains(err.Error(), "a PUBLIC KEY is needed") {
		t.Errorf("a private key to verify with: %v", err)
	}
}

func FuzzCheck(f *testing.F) {
	statement, err := New(f.Context(), "v0.1.0", someFiles, someSource(), "")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(statement.Data)
	f.Add([]byte(`{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[{"sig":"x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		claim, err := Check(t.Context(), data, "v0.1.0", someFiles, "")
		if err == nil && claim.Commit == "" {
			t.Error("no commit and no error")
		}
	})
}
