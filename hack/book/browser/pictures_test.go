package browser

import (
	"bytes"
	"flag"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "the folder to keep the pictures in")

// TestPictures takes the book's pictures: of the report and of the graph, from the golden files of their packages, and
// of the book itself.
func TestPictures(t *testing.T) {
	folder := *pictures
	if folder == "" {
		folder = t.TempDir()
	}
	const packages = "../../../pkg/"
	for _, picture := range []struct {
		name, page string
		before     func(w *window)
	}{
		{"report.png", packages + "report/testdata/report.html", nil},
		{"graph.png", packages + "move/draw/testdata/sample.html", nil},
		{"book.png", filepath.Join(*book, "how-to/hosts.html"), nil},
		{"book-search.png", filepath.Join(*book, "index.html"), func(w *window) {
			w.media("screen", "dark")
			w.search()
			w.key("control plane", results+`.length > 3`)
		}},
	} {
		t.Run(picture.name, func(t *testing.T) {
			w := open(t)
			w.do(chromedp.EmulateViewport(1000, 640), chromedp.Navigate(address(t, picture.page)))
			if picture.before != nil {
				picture.before(w)
			}
			screenshot, err := chromedp.Run(w.ctx, chromedp.CaptureScreenshot())
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := png.Decode(bytes.NewReader(screenshot))
			if err != nil {
				t.Fatal(err)
			}
			reduced := reduce(decoded)
			if len(reduced.Palette) < 50 {
				t.Errorf("the picture has %d colours: the page is empty", len(reduced.Palette))
			}
			var small bytes.Buffer
			if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, reduced); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, picture.name), small.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// reduce returns a picture in its 256 most frequent colours. They are enough for text and boxes, and the file is small.
func reduce(picture image.Image) *image.Paletted {
	count := map[color.Color]int{}
	bounds := picture.Bounds()
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			count[picture.At(x, y)]++
		}
	}
	usual := make(color.Palette, 0, len(count))
	for c := range count {
		usual = append(usual, c)
	}
	slices.SortFunc(usual, func(a, b color.Color) int {
		if count[a] != count[b] {
			return count[b] - count[a]
		}
		return slices.Compare(channels(a), channels(b))
	})
	reduced := image.NewPaletted(bounds, usual[:min(256, len(usual))])
	nearest := map[color.Color]uint8{}
	for c := range count {
		nearest[c] = uint8(reduced.Palette.Index(c))
	}
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			reduced.SetColorIndex(x, y, nearest[picture.At(x, y)])
		}
	}
	return reduced
}

// channels returns the channels of a colour.
func channels(c color.Color) []uint32 {
	r, g, b, a := c.RGBA()
	return []uint32{r, g, b, a}
}
