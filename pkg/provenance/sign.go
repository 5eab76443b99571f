package provenance

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
)

// keyAdvice describes the supported keys.
const keyAdvice = "make one with openssl genpkey -algorithm ed25519, and its public key with openssl pkey -pubout"

// CheckKey returns an error if the content of a file is not a key for signing.
func CheckKey(file string) error {
	_, err := readKey(file, signerverifier.PrivateKeyPEM)
	return err
}

// seal returns a payload in an envelope that is signed with the private key in a file: with Ed25519, or with ECDSA over
// the SHA-2 of the curve's size.
func seal(ctx context.Context, payload []byte, keyFile string) ([]byte, error) {
	key, err := readKey(keyFile, signerverifier.PrivateKeyPEM)
	if err != nil {
		return nil, err
	}
	signer, err := dsse.NewEnvelopeSigner(unnamed{key})
	if err != nil {
		return nil, err
	}
	e, err := signer.SignPayload(ctx, payloadType, payload)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	return json.Marshal(e)
}

// verify reports whether an envelope has a signature that matches the public key in a file.
func verify(ctx context.Context, e *dsse.Envelope, keyFile string) error {
	key, err := readKey(keyFile, signerverifier.PublicKeyPEM)
	if err != nil {
		return err
	}
	verifier, err := dsse.NewEnvelopeVerifier(key)
	if err != nil {
		return err
	}
	anonymous := *e
	anonymous.Signatures = nil
	for _, s := range e.Signatures {
		anonymous.Signatures = append(anonymous.Signatures, dsse.Signature{Sig: s.Sig})
	}
	if _, err := verifier.Verify(ctx, &anonymous); err != nil {
		return fmt.Errorf("%s: none of its signatures is by the key in %s: %w", File, keyFile, err)
	}
	return nil
}

// unnamed is a key without a key ID. The ID is a hint: each verifier compares it with an ID that it computes in its own
// way, and without one all verifiers try their keys.
//
// Source: DSSE v1.0, "Protocol", KEYID.
type unnamed struct{ dsse.SignerVerifier }

// KeyID implements dsse.Signer.
func (unnamed) KeyID() (string, error) { return "", nil }

// readKey returns the first key in a PEM file, Ed25519 or ECDSA, which has to be of a kind: PrivateKeyPEM (PKCS#8 or
// SEC1) or PublicKeyPEM. Errors never show its bytes.
func readKey(file, kind string) (dsse.SignerVerifier, error) {
	data, err := os.ReadFile(file) //nolint:gosec // the user names the file
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	var block *pem.Block
	for block, data = pem.Decode(data); block != nil; block, data = pem.Decode(data) {
		if strings.HasSuffix(block.Type, " KEY") { // openssl ecparam writes the curve's parameters first
			break
		}
	}
	switch {
	case block == nil:
		return nil, fmt.Errorf("the key in %s is not in the PEM format: %s", file, keyAdvice)
	case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
		return nil, fmt.Errorf("the key in %s is encrypted: write it to a file without a password, with openssl pkey -in %s", file, file)
	case !strings.HasSuffix(block.Type, kind):
		return nil, fmt.Errorf("the key in %s is a %s, but a %s is needed: %s", file, block.Type, kind, keyAdvice)
	}
	key, err := signerverifier.LoadKey(pem.EncodeToMemory(block))
	if errors.Is(err, signerverifier.ErrUnknownKeyType) {
		return nil, fmt.Errorf("the key in %s is neither Ed25519 nor ECDSA: %s", file, keyAdvice)
	}
	if err != nil {
		return nil, fmt.Errorf("the key in %s isn't a %s that can be read: %s", file, strings.ToLower(kind), keyAdvice)
	}
	if kind == signerverifier.PrivateKeyPEM && key.KeyVal.Private == "" {
		return nil, fmt.Errorf("the key in %s is a public key: sign with the private key that belongs to it", file)
	}
	switch key.KeyType {
	case signerverifier.ED25519KeyType:
		return signerverifier.NewED25519SignerVerifierFromSSLibKey(key)
	case signerverifier.ECDSAKeyType:
		return signerverifier.NewECDSASignerVerifierFromSSLibKey(key)
	}
	return nil, fmt.Errorf("the key in %s is of the type %s, but only Ed25519 and ECDSA keys are supported: %s", file, key.KeyType, keyAdvice)
}
