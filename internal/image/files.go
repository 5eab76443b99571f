package image

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/clusterctl-release/clusterctl-release/internal/program"
)

// certificates is the path of the authorities' certificates, the first that Go tries.
const certificates = "etc/ssl/certs/ca-certificates.crt"

// baseFiles returns the files of an image except its program.
func baseFiles(licences []program.Licence) []program.File {
	files := []program.File{
		{Path: "tmp/", Mode: 0o1777},
		{Path: "etc/passwd", Mode: 0o644, Data: fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%[1]d:nonroot:/tmp:/sbin/nologin\n", user)},
		{Path: "etc/group", Mode: 0o644, Data: fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", user)},
		{Path: certificates, Mode: 0o644, Data: publicAuthorities()},
	}
	for _, licence := range licences {
		files = append(files, program.File{Path: "licenses/" + licence.Path, Mode: 0o644, Data: licence.Text})
	}
	return files
}

// publicAuthorities returns the certificates of Mozilla's list in the PEM format, without those that are trusted with
// constraints: a file can't say what they are.
func publicAuthorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
		}
	}
	return text.Bytes()
}

// layerOf returns a layer with files and the folders that they are in.
func layerOf(files []program.File) (v1.Layer, error) {
	var archive bytes.Buffer
	if err := program.WriteTar(&archive, files, time.Unix(0, 0)); err != nil {
		return nil, fmt.Errorf("making a layer: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}
