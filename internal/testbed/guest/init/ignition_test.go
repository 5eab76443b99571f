package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestReadIgnition(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	g.Expect(readIgnition(folder)).To(BeEmpty())
	file := filepath.Join(folder, ignitionKey)
	g.Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(file, []byte("{}"), 0o644)).To(Succeed())
	g.Expect(readIgnition(folder)).To(Equal("44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"))

	g.Expect(os.Remove(file)).To(Succeed())
	g.Expect(os.Mkdir(file, 0o755)).To(Succeed())
	_, err := readIgnition(folder)
	g.Expect(err).To(MatchError(ContainSubstring("is a directory")))
}
