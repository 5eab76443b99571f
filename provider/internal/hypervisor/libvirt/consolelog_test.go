package libvirt

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

// talkative returns a disk whose boot sector writes a letter to the serial port the given number of times, and halts.
func talkative(letter byte, times uint16) []byte {
	sector := make([]byte, 1<<20)
	copy(sector, []byte{
		0xbb, byte(times), byte(times >> 8), // mov bx, times
		0xba, 0xfd, 0x03, // wait: mov dx, 0x3fd
		0xec,       // in al, dx
		0xa8, 0x20, // test al, 0x20
		0x74, 0xf8, // jz wait
		0xba, 0xf8, 0x03, // mov dx, 0x3f8
		0xb0, letter, // mov al, letter
		0xee,       // out dx, al
		0x4b,       // dec bx
		0x75, 0xef, // jnz wait
		0xf4,       // halt: hlt
		0xeb, 0xfd, // jmp halt
	})
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

// TestConsoleLog checks that a guest's console output is appended to a file that only its owner may read, that it stays
// over restarts, and that its size is limited.
func TestConsoleLog(t *testing.T) {
	g := NewWithT(t)
	d := theDaemon(t)
	t.Cleanup(func() { d.empty(t) })
	connection, err := d.connect(t.Context())
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = connection.Close() }()

	const uuid = "11111111-1111-4111-8111-111111111111"
	file := filepath.Join(d.ConsoleFolder(), "talkative-console.log")
	disk := hypervisor.VolumeRef{Pool: "default", Name: "talkative"}
	_, err = connection.CreateVolume(t.Context(), hypervisor.VolumeSpec{VolumeRef: disk, Format: hypervisor.FormatRaw, CapacityBytes: 1 << 20})
	g.Expect(err).ToNot(HaveOccurred())
	definition := define(uuid, "talkative", nil, disk)
	definition.XML = strings.Replace(definition.XML, "</devices>", "<console type='pty'><log file='"+file+"' append='on'/></console></devices>", 1)
	g.Expect(connection.DefineDomain(t.Context(), definition)).To(Succeed())
	// says lets the guest write, and waits until the files have all of it.
	says := func(letter byte, times uint16, files func() string, want string) {
		t.Helper()
		g.Expect(connection.UploadVolume(t.Context(), disk, bytes.NewReader(talkative(letter, times)), 1<<20)).To(Succeed())
		g.Expect(connection.StartDomain(t.Context(), uuid)).To(Succeed())
		g.Eventually(files).WithTimeout(daemonTimeout).WithPolling(100 * time.Millisecond).Should(Equal(want))
		g.Expect(connection.StopDomain(t.Context(), uuid)).To(Succeed())
	}
	read := func(name string) string {
		content, _ := os.ReadFile(name)
		return string(content)
	}
	newest := func() string { return read(file) }
	says('a', 100, newest, strings.Repeat("a", 100))
	says('b', 200, newest, strings.Repeat("a", 100)+strings.Repeat("b", 200))
	info, err := os.Stat(file)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))

	const rest = 77
	says('c', (libvirtd.ConsoleLogBackups+2)*libvirtd.ConsoleLogBytes+rest-300, newest, strings.Repeat("c", rest))
	files, err := filepath.Glob(file + "*")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(files).To(Equal([]string{file, file + ".0", file + ".1"}))
	g.Expect(read(files[1]) + read(files[2])).To(Equal(strings.Repeat("c", libvirtd.ConsoleLogBackups*libvirtd.ConsoleLogBytes)))

	// All parts of the log are deleted, and no other file.
	others := []string{filepath.Join(d.ConsoleFolder(), "talkative-console.log-of-another"), filepath.Join(d.ConsoleFolder(), "talkative-2-console.log")}
	for _, other := range others {
		g.Expect(os.WriteFile(other, nil, 0o600)).To(Succeed())
		t.Cleanup(func() { _ = os.Remove(other) })
	}
	g.Expect(connection.RemoveConsoleLog(t.Context(), uuid)).To(Succeed())
	g.Expect(connection.RemoveConsoleLog(t.Context(), uuid)).To(Succeed(), "again")
	g.Expect(filepath.Glob(filepath.Join(d.ConsoleFolder(), "talkative*"))).To(ConsistOf(others))
	domains, err := connection.ListDomains(t.Context())
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(domains).To(HaveLen(1))
}
