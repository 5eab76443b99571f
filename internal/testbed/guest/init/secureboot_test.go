package main

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestParseSecureBoot(t *testing.T) {
	for name, test := range map[string]struct {
		content string
		on      bool
		err     string
	}{
		"on":         {content: "\x06\x00\x00\x00\x01", on: true},
		"off":        {content: "\x06\x00\x00\x00\x00"},
		"too short":  {content: "\x06\x00\x00\x00", err: "is 06000000"},
		"too long":   {content: "\x06\x00\x00\x00\x01\x00", err: "is 060000000100"},
		"not a bool": {content: "\x06\x00\x00\x00\x02", err: "is 0600000002"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			on, err := parseSecureBoot([]byte(test.content))
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(on).To(Equal(test.on))
		})
	}
}
