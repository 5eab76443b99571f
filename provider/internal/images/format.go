package images

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

const (
	// headerBytes is how much of an image is looked at: what version 3 of qcow2 has at least.
	headerBytes = 104
	// maxDiskBytes is how large the disk in an image may be: as large as spec.rootDisk.size.
	maxDiskBytes = 64 << 40
)

var qcow2Magic = []byte("QFI\xfb")

// otherMagic are how images of other formats begin that libvirt tells by their first bytes. It looks for these in each
// volume of a pool, whatever the volume was made as, and opens the files that a header names.
var otherMagic = map[string][]byte{
	"QED": []byte("QED\x00"), "VMDK": []byte("KDMV"), "a VMDK of ESX": []byte("COWD"), "a copy-on-write image": []byte("OOOM"),
}

// diskSize returns the size of the disk that is in an image, from the image's first bytes and its
// size, both as they are when it is decompressed. The error is ErrNotAnImage when it can't be used: one that is of another format, or that
// refers to other files, which would be files of the host.
//
// The header is that of https://gitlab.com/qemu-project/qemu/-/blob/master/docs/interop/qcow2.rst.
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
