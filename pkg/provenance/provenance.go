// Package provenance creates and checks the statement of the source of a release's files: SLSA provenance in an in-toto
// statement, with a key in a signed DSSE envelope.
package provenance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// File is the name of the file with the provenance of a release.
const File = "provenance.intoto.jsonl"

// The types of the specifications, and this program's own.
// Source: SLSA provenance v1; in-toto attestation framework, "Envelope layer specification", v1.
const (
	predicateType  = "https://slsa.dev/provenance/v1"
	payloadType    = "application/vnd.in-toto+json"
	buildType      = "https://github.com/clusterctl-release/clusterctl-release/build/v1"
	builderProgram = "https://github.com/clusterctl-release/clusterctl-release"
)

// Claim is the source that a provenance names.
type Claim struct {
	// Repository is the URL of the repository, or "" if none is named.
	Repository string
	Commit     string
}

// String returns the commit, with its repository where that is known.
func (c Claim) String() string {
	if c.Repository == "" {
		return "the commit " + c.Commit
	}
	return "the commit " + c.Commit + " of " + c.Repository
}

// New returns the provenance of a version's files with their recorded source, signed with the private key in a file
// unless keyFile is empty. Without a key, the same input results in the same bytes.
func New(ctx context.Context, version string, files []release.File, source *release.Source, keyFile string) (release.File, error) {
	text, err := statement(version, files, source)
	if err == nil && keyFile != "" {
		text, err = seal(ctx, text, keyFile)
	}
	if err != nil {
		return release.File{}, fmt.Errorf("making the provenance of %s: %w", version, err)
	}
	return release.File{Name: File, Data: append(text, '\n')}, nil
}

// statement returns the in-toto statement as JSON.
func statement(version string, files []release.File, source *release.Source) ([]byte, error) {
	parameters, err := structpb.NewStruct(map[string]any{"version": version})
	if err != nil {
		return nil, err
	}
	builder := &slsa.Builder{Id: builderProgram}
	if source.Tool != "" {
		builder.Version = map[string]string{"clusterctl-release": source.Tool}
	}
	commit := &intoto.ResourceDescriptor{Digest: map[string]string{intoto.AlgorithmGitCommit.String(): source.Commit}}
	if source.Repository != "" {
		commit.Uri = "git+" + source.Repository
	}
	predicate, err := asStruct(&slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType: buildType, ExternalParameters: parameters, ResolvedDependencies: []*intoto.ResourceDescriptor{commit},
		},
		RunDetails: &slsa.RunDetails{Builder: builder},
	})
	if err != nil {
		return nil, err
	}
	s := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: predicateType, Predicate: predicate}
	for _, f := range files {
		s.Subject = append(s.Subject, &intoto.ResourceDescriptor{
			Name: f.Name, Digest: map[string]string{intoto.AlgorithmSHA256.String(): release.Digest(f.Data)},
		})
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return marshal(s)
}

// marshal returns a message as JSON without the spaces that protojson inserts at random.
func marshal(m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	err = json.Compact(&compact, text)
	return compact.Bytes(), err
}

// asStruct returns a predicate in the form of statements.
func asStruct(m proto.Message) (*structpb.Struct, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	return s, protojson.Unmarshal(text, s)
}

// Check compares files with their provenance. Without a key it does not check the signature; with one, a signature with
// the matching private key is required. It returns the claimed source of the files.
func Check(ctx context.Context, text []byte, version string, files []release.File, keyFile string) (Claim, error) {
	payload, err := open(ctx, bytes.TrimSpace(text), keyFile)
	if err != nil {
		return Claim{}, err
	}
	lenient := protojson.UnmarshalOptions{DiscardUnknown: true} // as the specification requires
	s := &intoto.Statement{}
	if err := lenient.Unmarshal(payload, s); err != nil || s.Validate() != nil || s.Type != intoto.StatementTypeUri || s.PredicateType != predicateType {
		return Claim{}, fmt.Errorf("%s isn't an in-toto statement of SLSA provenance", File)
	}
	predicate, err := protojson.Marshal(s.Predicate)
	if err != nil {
		return Claim{}, err
	}
	p := &slsa.Provenance{}
	if err := lenient.Unmarshal(predicate, p); err != nil {
		return Claim{}, fmt.Errorf("%s isn't an in-toto statement of SLSA provenance: %w", File, err)
	}
	definition := p.GetBuildDefinition()
	if said := definition.GetExternalParameters().GetFields()["version"].GetStringValue(); said != version {
		return Claim{}, fmt.Errorf("%s has the version %q, not %s", File, said, version)
	}
	var problems []error
	for _, f := range files {
		i := slices.IndexFunc(s.Subject, func(d *intoto.ResourceDescriptor) bool { return d.Name == f.Name })
		switch {
		case i < 0:
			problems = append(problems, fmt.Errorf("%s does not name %s", File, f.Name))
		case s.Subject[i].Digest[intoto.AlgorithmSHA256.String()] != release.Digest(f.Data):
			problems = append(problems, fmt.Errorf("%s names other bytes for %s", File, f.Name))
		}
	}
	claim := claimOf(definition.GetResolvedDependencies())
	if claim.Commit == "" {
		problems = append(problems, fmt.Errorf("%s names no commit", File))
	}
	return claim, errors.Join(problems...)
}

// open returns the statement in a text: the content of its envelope, or the whole text without one.
func open(ctx context.Context, text []byte, keyFile string) ([]byte, error) {
	var e dsse.Envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, fmt.Errorf("%s isn't JSON: %w", File, err)
	}
	if keyFile != "" {
		if err := verify(ctx, &e, keyFile); err != nil {
			return nil, err
		}
	}
	if e.PayloadType == "" {
		return text, nil
	}
	payload, err := e.DecodeB64Payload()
	if err != nil || e.PayloadType != payloadType {
		return nil, fmt.Errorf("%s: its envelope contains no %s", File, payloadType)
	}
	return payload, nil
}

// claimOf returns the claim in the first dependency that is a commit.
func claimOf(dependencies []*intoto.ResourceDescriptor) Claim {
	for _, d := range dependencies {
		if commit := d.GetDigest()[intoto.AlgorithmGitCommit.String()]; commit != "" {
			repository, _, _ := strings.Cut(strings.TrimPrefix(d.GetUri(), "git+"), "@refs/")
			return Claim{Repository: repository, Commit: commit}
		}
	}
	return Claim{}
}
