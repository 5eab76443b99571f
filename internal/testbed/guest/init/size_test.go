package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// TestSize checks that the memory is the kernel's, that the disk is the first one, and that missing values are errors.
func TestSize(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	_, err := readSize(folder, folder)
	g.Expect(err).To(MatchError(ContainSubstring("meminfo")))
	memory := filepath.Join(folder, "meminfo")
	g.Expect(os.WriteFile(memory, []byte("MemFree: 12 kB\n"), 0o600)).To(Succeed())
	_, err = readSize(folder, folder)
	g.Expect(err).To(MatchError(memory + " has no MemTotal"))
	g.Expect(os.WriteFile(memory, []byte("MemTotal:         223344 kB\nMemFree: 12 kB\n"), 0o600)).To(Succeed())
	_, err = readSize(folder, folder)
	g.Expect(err).To(MatchError(ContainSubstring("vda/size")))
	g.Expect(os.Mkdir(filepath.Join(folder, "vda"), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(folder, "vda", "size"), []byte("2048\n"), 0o600)).To(Succeed())
	size, err := readSize(folder, folder)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(size.MemoryBytes).To(BeEquivalentTo(223344 << 10))
	g.Expect(size.RootDiskBytes).To(BeEquivalentTo(1 << 20))
	g.Expect(size.CPUs).To(BeNumerically(">", 0))
}
