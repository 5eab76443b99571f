package publish

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// The files that lie beside those of a release on a server.
const (
	ProvenanceFile = store.ProvenanceFile
	ChecksumsFile  = store.ChecksumsFile
)

// The types of the statement, as their specifications name them.
// Source: in-toto attestation framework, "Statement layer specification", v1; SLSA provenance v1;
// DSSE v1.0, "Protocol".
const (
	statementType  = "https://in-toto.io/Statement/v1"
	predicateType  = "https://slsa.dev/provenance/v1"
	payloadType    = "application/vnd.in-toto+json"
	buildType      = "https://github.com/clusterctl-release/clusterctl-release/build/v1"
	builderProgram = "https://github.com/clusterctl-release/clusterctl-release"
)

// statement is an in-toto statement with SLSA provenance.
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     predicate `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

type predicate struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []dependency      `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID      string            `json:"id"`
			Version map[string]string `json:"version,omitempty"`
		} `json:"builder"`
	} `json:"runDetails"`
}

type dependency struct {
	URI    string            `json:"uri"`
	Digest map[string]string `json:"digest"`
}

// envelope is a DSSE envelope.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"`
}

// madeFiles returns the files that lie beside those of a version: its checksums, and its provenance
// where the source is known.
func madeFiles(v *store.Version, from store.Source, opts Options) ([]release.File, error) {
	files := []release.File{v.Checksums()}
	if from.Repository == "" || from.Commit == "" {
		if opts.SignKey != "" {
			return nil, errors.New("there is a key to sign with, and nothing to sign, as the source is not known: name the commit (--commit)")
		}
		return files, nil
	}
	provenance, err := newProvenance(v, from, opts)
	if err != nil {
		return nil, err
	}
	return append(files, provenance), nil
}

// newProvenance returns the provenance of a version. Without a key it is the same for the same input.
func newProvenance(v *store.Version, from store.Source, opts Options) (release.File, error) {
	s := statement{Type: statementType, PredicateType: predicateType}
	for _, f := range v.Files {
		s.Subject = append(s.Subject, subject{Name: f.Name, Digest: map[string]string{"sha256": store.Digest(f.Data)}})
	}
	s.Predicate.BuildDefinition.BuildType = buildType
	s.Predicate.BuildDefinition.ExternalParameters = map[string]string{"version": v.Number}
	s.Predicate.BuildDefinition.ResolvedDependencies = []dependency{{
		URI: "git+" + from.Repository + "@refs/tags/" + v.Number, Digest: map[string]string{"gitCommit": from.Commit},
	}}
	s.Predicate.RunDetails.Builder.ID = builderProgram
	if opts.ToolVersion != "" {
		s.Predicate.RunDetails.Builder.Version = map[string]string{"clusterctl-release": opts.ToolVersion}
	}
	text, err := json.Marshal(s)
	if err == nil && opts.SignKey != "" {
		text, err = seal(text, opts.SignKey)
	}
	if err != nil {
		return release.File{}, fmt.Errorf("making the provenance of %s: %w", v.Number, err)
	}
	return release.File{Name: ProvenanceFile, Data: append(text, '\n')}, nil
}

// seal returns a payload in an envelope that is signed with the private key in a file.
func seal(payload []byte, keyFile string) ([]byte, error) {
	key, err := readSignKey(keyFile)
	if err != nil {
		return nil, err
	}
	message := preAuthentication(payload)
	options := crypto.SignerOpts(crypto.Hash(0))
	if _, ok := key.(*ecdsa.PrivateKey); ok {
		sum := sha256.Sum256(message)
		message, options = sum[:], crypto.SHA256
	}
	sig, err := key.Sign(rand.Reader, message, options)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	id, err := keyID(key.Public())
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{
		PayloadType: payloadType, Payload: base64.StdEncoding.EncodeToString(payload),
		Signatures: []signature{{KeyID: id, Sig: base64.StdEncoding.EncodeToString(sig)}},
	})
}

// preAuthentication returns what is signed for a payload.
// Source: DSSE v1.0, "Signature definition".
func preAuthentication(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

// keyID returns the SHA-256 of a public key.
func keyID(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	return store.Digest(der), err
}

// keyAdvice says what keys there are.
const keyAdvice = "make one with openssl genpkey -algorithm ed25519, and its public key with openssl pkey -pubout"

// readSignKey returns the private key in a PEM file: Ed25519 or ECDSA.
func readSignKey(file string) (crypto.Signer, error) {
	block, err := readPEM(file)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block)
	if err != nil {
		return nil, fmt.Errorf("the key in %s is no private key that can be read: %s", file, keyAdvice) // the error may show bytes of it
	}
	switch key := parsed.(type) {
	case ed25519.PrivateKey:
		return key, nil
	case *ecdsa.PrivateKey:
		return key, nil
	}
	return nil, fmt.Errorf("the key in %s is a %T, and Ed25519 and ECDSA keys are signed with: %s", file, parsed, keyAdvice)
}

func readPEM(file string) ([]byte, error) {
	data, err := os.ReadFile(file) //nolint:gosec // the user names the file
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("the key in %s is not in the PEM format: %s", file, keyAdvice)
	}
	return block.Bytes, nil
}

// verifySignature says whether a message was signed with the private key to the public key in a file.
func verifySignature(message []byte, signatures []signature, keyFile string) error {
	block, err := readPEM(keyFile)
	if err != nil {
		return err
	}
	public, err := x509.ParsePKIXPublicKey(block)
	if err != nil {
		return fmt.Errorf("the key in %s is no public key: %s", keyFile, keyAdvice)
	}
	for _, s := range signatures {
		sig, err := base64.StdEncoding.DecodeString(s.Sig)
		if err != nil {
			continue
		}
		switch key := public.(type) {
		case ed25519.PublicKey:
			if ed25519.Verify(key, message, sig) {
				return nil
			}
		case *ecdsa.PublicKey:
			sum := sha256.Sum256(message)
			if ecdsa.VerifyASN1(key, sum[:], sig) {
				return nil
			}
		}
	}
	return fmt.Errorf("%s: none of its signatures is by the key in %s", ProvenanceFile, keyFile)
}

// checkProvenance holds files against their provenance. Without a key a signature is not looked at;
// with one there has to be a signature by it. It returns the commit that the files are said to come from.
func checkProvenance(text []byte, version string, files []release.File, keyFile string) (string, error) {
	payload := bytes.TrimSpace(text)
	var e envelope
	if err := json.Unmarshal(payload, &e); err != nil {
		return "", fmt.Errorf("%s is no JSON: %w", ProvenanceFile, err)
	}
	if e.PayloadType != "" {
		var err error
		if payload, err = base64.StdEncoding.DecodeString(e.Payload); err != nil || e.PayloadType != payloadType {
			return "", fmt.Errorf("%s: its envelope holds no %s", ProvenanceFile, payloadType)
		}
	}
	if keyFile != "" {
		if err := verifySignature(preAuthentication(payload), e.Signatures, keyFile); err != nil {
			return "", err
		}
	}
	var s statement
	if err := json.Unmarshal(payload, &s); err != nil || s.Type != statementType || s.PredicateType != predicateType {
		return "", fmt.Errorf("%s is no in-toto statement of SLSA provenance", ProvenanceFile)
	}
	if said := s.Predicate.BuildDefinition.ExternalParameters["version"]; said != version {
		return "", fmt.Errorf("%s is of the version %q, and not of %s", ProvenanceFile, said, version)
	}
	var problems []error
	for _, f := range files {
		i := slices.IndexFunc(s.Subject, func(x subject) bool { return x.Name == f.Name })
		switch {
		case i < 0:
			problems = append(problems, fmt.Errorf("%s does not name %s", ProvenanceFile, f.Name))
		case s.Subject[i].Digest["sha256"] != store.Digest(f.Data):
			problems = append(problems, fmt.Errorf("%s names other bytes for %s", ProvenanceFile, f.Name))
		}
	}
	commit := ""
	for _, d := range s.Predicate.BuildDefinition.ResolvedDependencies {
		commit = d.Digest["gitCommit"]
	}
	if commit == "" {
		problems = append(problems, fmt.Errorf("%s names no commit", ProvenanceFile))
	}
	return commit, errors.Join(problems...)
}
