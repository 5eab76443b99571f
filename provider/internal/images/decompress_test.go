package images

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	. "github.com/onsi/gomega"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func gzipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	_, err := writer.Write(content)
	NewWithT(t).Expect(errors.Join(err, writer.Close())).To(Succeed())
	return out.Bytes()
}

func zstandard(t testing.TB, content []byte, options ...zstd.EOption) []byte {
	t.Helper()
	var out bytes.Buffer
	writer, err := zstd.NewWriter(&out, options...)
	NewWithT(t).Expect(err).ToNot(HaveOccurred())
	_, err = writer.Write(content)
	NewWithT(t).Expect(errors.Join(err, writer.Close())).To(Succeed())
	return out.Bytes()
}

// sample reads a file that was created with xz: qcow2Image(nil) with xz -9 (image.qcow2.xz) and with a dictionary of
// 128 MiB (window.qcow2.xz), and rawImage (image.raw.xz).
func sample(t testing.TB, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	NewWithT(t).Expect(err).ToNot(HaveOccurred())
	return content
}

func rawImage() []byte { return bytes.Repeat([]byte("raw disk"), 1<<18) }

// TestCompressedImages checks that images are stored decompressed, whatever the name in their URL, and that the
// checksum is that of the compressed file.
func TestCompressedImages(t *testing.T) {
	qcow2, raw := qcow2Image(nil), rawImage()
	for name, tc := range map[string]struct {
		served, content []byte
		format          infrav1.ImageFormat
		capacity        int64
	}{
		"gzip":                {served: gzipped(t, qcow2), content: qcow2, capacity: diskBytes},
		"gzip, in two pieces": {served: append(gzipped(t, qcow2[:50]), gzipped(t, qcow2[50:])...), content: qcow2, capacity: diskBytes},
		"xz":                  {served: sample(t, "image.qcow2.xz"), content: qcow2, capacity: diskBytes},
		"zstd":                {served: zstandard(t, qcow2), content: qcow2, capacity: diskBytes},
		"gzip, raw":           {served: gzipped(t, raw), content: raw, format: infrav1.ImageFormatRaw, capacity: int64(len(raw))},
		"xz, raw":             {served: sample(t, "image.raw.xz"), content: raw, format: infrav1.ImageFormatRaw, capacity: int64(len(raw))},
		"zstd, raw":           {served: zstandard(t, raw), content: raw, format: infrav1.ImageFormatRaw, capacity: int64(len(raw))},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newHosts("one"), Options{})
			wish := wishFor(serve(t, serving(tc.served)).URL+"/image", tc.served)
			wish.Format = tc.format
			image := f.eventually(wish, machine(1))
			f.Expect(f.fakes.hosts["one"].Content(image.VolumeRef)).To(Equal(tc.content))
			f.Expect(image.CapacityBytes).To(Equal(tc.capacity))
			f.Expect(f.Ensure(t.Context(), wish, machine(2))).To(Equal(image), "the existing image")
		})
	}
}

// TestCompressedImagesThatAreRefused checks that refused images leave no volumes on the host.
func TestCompressedImagesThatAreRefused(t *testing.T) {
	good := qcow2Image(nil)
	damaged := gzipped(t, good)
	damaged[len(damaged)/2]++
	cut := func(content []byte) []byte { return content[:len(content)-20] }
	for name, tc := range map[string]struct {
		served  []byte
		sum     string
		is      error
		message string
	}{
		"damaged":                   {served: damaged, is: ErrNotAnImage, message: "decompressing it with gzip"},
		"cut off, gzip":             {served: cut(gzipped(t, good)), is: ErrNotAnImage, message: "unexpected EOF"},
		"cut off, xz":               {served: cut(sample(t, "image.qcow2.xz")), is: ErrNotAnImage, message: "decompressing it with xz"},
		"cut off, zstd":             {served: cut(zstandard(t, good)), is: ErrNotAnImage, message: "decompressing it with zstd"},
		"more after its end, gzip":  {served: append(gzipped(t, good), "more"...), is: ErrNotAnImage, message: "decompressing it with gzip"},
		"more after its end, xz":    {served: append(sample(t, "image.qcow2.xz"), "more"...), is: ErrNotAnImage, message: "decompressing it with xz"},
		"more after its end, zstd":  {served: append(zstandard(t, good), "more"...), is: ErrNotAnImage, message: "decompressing it with zstd"},
		"the checksum of the image": {served: gzipped(t, good), sum: checksum(good), is: ErrChecksumMismatch, message: "the served file has "},
		"compressed twice":          {served: zstandard(t, gzipped(t, good)), is: ErrNotAnImage, message: "compressed with gzip: compress it once"},
		"with bzip2":                {served: append([]byte("BZh9"), make([]byte, 200)...), is: ErrNotAnImage, message: "compressed with bzip2"},
		"a page":                    {served: gzipped(t, []byte("<html>")), is: ErrNotAnImage, message: "spec.image.format is qcow2, and this isn't"},
		"nothing":                   {served: gzipped(t, nil), is: ErrNotAnImage, message: "spec.image.format is qcow2, and this isn't"},
		"a backing file":            {served: gzipped(t, qcow2Image(func(h []byte) { h[15] = 104 })), is: ErrNotAnImage, message: "it has a backing file"},
		"more than is allowed":      {served: gzipped(t, append(qcow2Image(nil), make([]byte, 8<<20)...)), is: ErrNotAnImage, message: "at most 8Mi are allowed"},
		"more than is free":         {served: gzipped(t, append(qcow2Image(nil), make([]byte, 6<<20)...)), is: hypervisor.ErrNoSpace, message: "larger than the 6Mi that are free"},
		"a window of 128Mi, xz":     {served: sample(t, "window.qcow2.xz"), is: ErrNotAnImage, message: "dictionary size exceeds max"},
		"a window of 128Mi, zstd":   {served: zstandard(t, good, zstd.WithWindowSize(128<<20), zstd.WithSingleSegment(false)), is: ErrNotAnImage, message: "window size exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newHosts("one"), Options{MaxBytes: 8 << 20})
			f.fakes.hosts["one"].SetPool(hypervisor.Pool{Name: "default", Active: true, CapacityBytes: 1 << 30, AvailableBytes: 6 << 20})
			if tc.is == ErrNotAnImage { //nolint:errorlint // the table has this value
				f.fakes.hosts["one"].SetPool(hypervisor.Pool{Name: "default", Active: true, CapacityBytes: 1 << 30, AvailableBytes: 1 << 30})
			}
			wish := wishFor(serve(t, serving(tc.served)).URL, tc.served)
			if tc.sum != "" {
				wish.Checksum = tc.sum
			}
			err := f.failure(wish, machine(1))
			f.Expect(err).To(MatchError(tc.is))
			f.Expect(err).To(MatchError(ContainSubstring(tc.message)))
			f.stop()
			f.Expect(f.volumes("one")).To(BeEmpty())
		})
	}
}

// TestCompressedOnTheWayIsNotTheImage checks that a Content-Encoding is refused: the checksum of the decoded body would
// not be that of the file.
func TestCompressedOnTheWayIsNotTheImage(t *testing.T) {
	served := gzipped(t, qcow2Image(nil))
	f := newFixture(t, newHosts("one"), Options{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		f.Expect(r.Header).ToNot(HaveKey("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")
		serving(served)(w, r)
	})
	f.Expect(f.failure(wishFor(server.URL, served), machine(1))).To(MatchError(ContainSubstring("header Content-Encoding")))
}

// FuzzDecompress checks that any served content is an image or an error.
func FuzzDecompress(f *testing.F) {
	image := qcow2Image(nil)
	for _, seed := range [][]byte{image, gzipped(f, image), zstandard(f, image), sample(f, "image.qcow2.xz"), sample(f, "window.qcow2.xz"), sample(f, "image.raw.xz")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, served []byte) {
		content, compressed, err := decompress(bufio.NewReader(bytes.NewReader(served)))
		if err != nil {
			return
		}
		header, err := content.Peek(headerBytes)
		if err != nil && !errors.Is(err, io.EOF) {
			return
		}
		for _, format := range []hypervisor.VolumeFormat{hypervisor.FormatQCOW2, hypervisor.FormatRaw} {
			if capacity, err := diskSize(format, header, int64(len(header))); err == nil && (capacity < 0 || capacity > maxDiskBytes) {
				t.Errorf("a disk of %d bytes", capacity)
			}
		}
		size, err := io.Copy(io.Discard, io.LimitReader(content, 1<<20))
		if !compressed && (err != nil || size != min(int64(len(served)), 1<<20)) {
			t.Errorf("%d of %d bytes were read, with error %v", size, len(served), err)
		}
	})
}
