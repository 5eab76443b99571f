package notes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
)

func TestShort(t *testing.T) {
	for name, tc := range map[string]struct {
		note   string
		values []any
		want   string
	}{
		"short":                 {note: "Host %s fits", values: []any{"a"}, want: "Host a fits"},
		"the maximum length":    {note: "%s", values: []any{strings.Repeat("x", MaxBytes)}, want: strings.Repeat("x", MaxBytes)},
		"too long":              {note: "%s", values: []any{strings.Repeat("x", MaxBytes+1)}, want: strings.Repeat("x", MaxBytes-4) + " ..."},
		"not within a letter":   {note: strings.Repeat("ä", MaxBytes), want: strings.Repeat("ä", (MaxBytes-4)/2) + " ..."},
		"between two letters":   {note: "x" + strings.Repeat("ä", MaxBytes), want: "x" + strings.Repeat("ä", (MaxBytes-5)/2) + " ..."},
		"percents in its value": {note: "%s", values: []any{"100 %s of %d"}, want: "100 %s of %d"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			recorder := events.NewFakeRecorder(1)
			Short(recorder).Eventf(&corev1.Pod{}, nil, corev1.EventTypeNormal, "Reason", "Act", tc.note, tc.values...)
			said := <-recorder.Events
			g.Expect(said).To(Equal("Normal Reason " + tc.want))
			g.Expect(utf8.ValidString(said)).To(BeTrue())
			g.Expect(len(tc.want)).To(BeNumerically("<=", MaxBytes))
		})
	}
}

func TestCut(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		most int
		want string
	}{
		"short":               {text: "ä", most: 2, want: "ä"},
		"not within a letter": {text: "xää", most: 4, want: "xä"},
		"nothing":             {text: "ä", most: 1, want: ""},
		"invalid UTF-8":       {text: "a\xffb\xc3", most: 10, want: "a\ufffdb\ufffd"},
		"much invalid UTF-8":  {text: strings.Repeat("\xff\xc3\xa4", 4), most: 6, want: "\ufffdä"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Cut(tc.text, tc.most)).To(Equal(tc.want))
		})
	}
}

// TestAllRecordersAreShort checks that all event recorders are wrapped by this package.
func TestAllRecordersAreShort(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob("../controllers/*/*.go")
	g.Expect(err).ToNot(HaveOccurred())
	all := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		g.Expect(err).ToNot(HaveOccurred())
		asked, short := strings.Count(string(content), ".GetEventRecorder("), strings.Count(string(content), "notes.Short(mgr.GetEventRecorder(")
		g.Expect(asked).To(Equal(short), "%s: put notes.Short around the recorder", file)
		all += short
	}
	g.Expect(all).To(BeNumerically(">=", 8))
}
