package images

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
)

// maxWindow is how much memory a decompressor may use for what it has decompressed last: what xz -9 and zstd --ultra -21
// need. The stream says how much it needs, which may be gigabytes.
const maxWindow = 64 << 20

// decompressor returns a reader of what is in a compressed stream, up to the stream's end.
type decompressor func(stream io.Reader) (io.Reader, error)

// compressions are known by the first bytes: names of files and the header Content-Type are wrong too often. Images
// that are compressed with one that has no decompressor are refused.
var compressions = []struct {
	name  string
	magic []byte
	open  decompressor
}{
	{"gzip", []byte("\x1f\x8b"), func(stream io.Reader) (io.Reader, error) { return gzip.NewReader(stream) }},
	{"xz", []byte("\xfd7zXZ\x00"), func(stream io.Reader) (io.Reader, error) { return xz.NewReader(stream, maxWindow) }},
	// With one worker it has no goroutine that has to be ended.
	{"zstd", []byte("\x28\xb5\x2f\xfd"), func(stream io.Reader) (io.Reader, error) {
		return zstd.NewReader(stream, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	}},
	{"bzip2", []byte("BZh"), nil},
	{"zip", []byte("PK\x03\x04"), nil},
}

// compressionOf returns the name of what something is compressed with, by how it begins, and what decompresses it.
func compressionOf(header []byte) (name string, open decompressor) {
	for _, compression := range compressions {
		if bytes.HasPrefix(header, compression.magic) {
			return compression.name, compression.open
		}
	}
	return "", nil
}

// decompress returns the decompressed content of a stream, or the stream itself if it isn't compressed.
func decompress(stream *bufio.Reader) (content *bufio.Reader, compressed bool, err error) {
	header, err := stream.Peek(headerBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, fmt.Errorf("reading how it begins: %w", err)
	}
	name, open := compressionOf(header)
	if open == nil {
		return stream, false, nil
	}
	opened, err := open(stream)
	if err != nil {
		return nil, false, decompressionError(name, err)
	}
	return bufio.NewReader(&decompressing{name: name, Reader: opened}), true, nil
}

// decompressing is the content of a compressed stream.
type decompressing struct {
	io.Reader
	name string
}

func (d *decompressing) Read(out []byte) (int, error) {
	n, err := d.Reader.Read(out)
	if err != nil && !errors.Is(err, io.EOF) {
		err = decompressionError(d.name, err)
	}
	return n, err
}

// decompressionError says that a stream can't be decompressed. An error of the server stays as it is.
func decompressionError(name string, err error) error {
	var ofSource *sourceError
	if errors.As(err, &ofSource) {
		return ofSource
	}
	return &sourceError{fmt.Errorf("%w: decompressing it with %s: %w", ErrNotAnImage, name, err)}
}
