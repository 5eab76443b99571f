package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestFindDisks(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	for name, content := range map[string]string{
		"vda/size": "2097152\n", // no serial number
		"vdb/size": "131072\n", "vdb/serial": "data",
		"vdc/size": "8\n", "vdc/serial": "\n",
		"sda/size": "8\n", "sda/serial": "other",
	} {
		file := filepath.Join(folder, name)
		g.Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(file, []byte(content), 0o644)).To(Succeed())
	}
	g.Expect(findDisks(folder)).To(Equal(map[string]int64{"data": 64 << 20}))

	g.Expect(os.WriteFile(filepath.Join(folder, "vdb/size"), []byte("many"), 0o644)).To(Succeed())
	_, err := findDisks(folder)
	g.Expect(err).To(MatchError(ContainSubstring("the size of vdb")))
}
