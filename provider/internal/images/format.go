package images

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// maxWindow limits the memory of a decompressor, as xz -9 and zstd --ultra -21 need it. The stream could ask for
// gigabytes.
const maxWindow = 64 << 20

// decompressor returns a reader of the content of a compressed stream.
type decompressor func(stream io.Reader) (io.Reader, error)

// compressions are recognized by their first bytes, because file names and Content-Type are often wrong. Those without
// a decompressor are refused.
var compressions = []struct {
	name  string
	magic []byte
	open  decompressor
}{
	{"gzip", []byte("\x1f\x8b"), func(stream io.Reader) (io.Reader, error) { return gzip.NewReader(stream) }},
	{"xz", []byte("\xfd7zXZ\x00"), func(stream io.Reader) (io.Reader, error) { return xz.NewReader(stream, maxWindow) }},
	// With one worker the decoder has no goroutine to stop.
	{"zstd", []byte("\x28\xb5\x2f\xfd"), func(stream io.Reader) (io.Reader, error) {
		return zstd.NewReader(stream, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	}},
	{"bzip2", []byte("BZh"), nil},
	{"zip", []byte("PK\x03\x04"), nil},
}

// compressionOf returns the name of a compression by its first bytes, and its decompressor.
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
		return nil, false, fmt.Errorf("reading the first bytes: %w", err)
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

// decompressionError returns an error of a decompressor. An error of the server stays as it is.
func decompressionError(name string, err error) error {
	var ofSource *sourceError
	if errors.As(err, &ofSource) {
		return ofSource
	}
	return &sourceError{fmt.Errorf("%w: decompressing it with %s: %w", ErrNotAnImage, name, err)}
}

const (
	// headerBytes is the size of the examined header: the minimum header of qcow2 version 3.
	headerBytes = 104
	// maxDiskBytes is the maximum size of the disk in an image, which is that of spec.rootDisk.size.
	maxDiskBytes = 64 << 40
)

var qcow2Magic = []byte("QFI\xfb")

// otherMagic has the first bytes of other image formats that libvirt detects. It looks for these in each volume of a
// pool, whatever format the volume was created with, and opens the files that a header names.
var otherMagic = map[string][]byte{
	"QED": []byte("QED\x00"), "VMDK": []byte("KDMV"), "a VMDK of ESX": []byte("COWD"), "a copy-on-write image": []byte("OOOM"),
}

// diskSize returns the size of the disk in an image, from the image's decompressed first bytes and size. The error is
// ErrNotAnImage if the image has another format or refers to other files, which would be files of the host.
//
// The header is defined in https://gitlab.com/qemu-project/qemu/-/blob/master/docs/interop/qcow2.rst.
func diskSize(format hypervisor.VolumeFormat, header []byte, size int64) (int64, error) {
	refuse := func(why string, values ...any) (int64, error) {
		return 0, fmt.Errorf("%w: "+why, append([]any{ErrNotAnImage}, values...)...)
	}
	if name, _ := compressionOf(header); name != "" {
		return refuse("it is compressed with %s: compress it once, with gzip, xz or zstd", name)
	}
	isQCOW2 := bytes.HasPrefix(header, qcow2Magic)
	if format != hypervisor.FormatQCOW2 {
		if isQCOW2 {
			return refuse("spec.image.format is %s, and this is qcow2", format)
		}
		for name, magic := range otherMagic {
			if bytes.HasPrefix(header, magic) {
				return refuse("spec.image.format is %s, and this is %s", format, name)
			}
		}
		return size, nil
	}
	if !isQCOW2 || len(header) < headerBytes {
		return refuse("spec.image.format is qcow2, and this isn't")
	}
	version := binary.BigEndian.Uint32(header[4:])
	if version != 2 && version != 3 {
		return refuse("version %d of qcow2 is unknown", version)
	}
	if binary.BigEndian.Uint64(header[8:]) != 0 {
		return refuse("it has a backing file: make one image of both, for example with qemu-img convert")
	}
	if binary.BigEndian.Uint32(header[32:]) != 0 {
		return refuse("it is encrypted")
	}
	const externalData = 1 << 2
	if version == 3 && binary.BigEndian.Uint64(header[72:])&externalData != 0 {
		return refuse("its data is in another file")
	}
	capacity := binary.BigEndian.Uint64(header[24:])
	if capacity == 0 || capacity > maxDiskBytes {
		return refuse("its disk has %d bytes", capacity)
	}
	return int64(capacity), nil
}
