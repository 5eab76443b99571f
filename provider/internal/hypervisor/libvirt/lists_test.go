package libvirt

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// lists has the called methods of the library that return a list, with their procedures.
var lists = map[string]uint32{
	"ConnectListAllDomains": procDomains, "ConnectListAllStoragePools": 281, "StoragePoolListAllVolumes": 282,
	"ConnectListAllNodeDevices": 285, "DomainInterfaceAddresses": 353,
}

// TestGuardKnowsAllLists checks that the guard knows the list of each called procedure. The library allocates as many
// elements as the host announces, and running out of memory can't be recovered.
func TestGuardKnowsAllLists(t *testing.T) {
	g := NewWithT(t)
	names, err := filepath.Glob("*.go")
	g.Expect(err).ToNot(HaveOccurred())
	library, found := reflect.TypeFor[*golibvirt.Libvirt](), map[string]bool{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		g.Expect(err).ToNot(HaveOccurred())
		ast.Inspect(file, func(node ast.Node) bool {
			called, is := node.(*ast.SelectorExpr)
			if !is {
				return true
			}
			if of, is := called.X.(*ast.Ident); !is || of.Name != "client" {
				return true
			}
			method, known := library.MethodByName(called.Sel.Name)
			for i := 0; known && i < method.Type.NumOut(); i++ {
				if out := method.Type.Out(i); out.Kind() == reflect.Slice && out.Elem().Kind() != reflect.Uint8 {
					found[method.Name] = true
				}
			}
			return true
		})
	}
	for name := range found {
		g.Expect(lists).To(HaveKey(name), "the call returns a list: add it here and to listProcedures")
	}
	for name, procedure := range lists {
		g.Expect(found).To(HaveKey(name), "no longer called")
		g.Expect(listProcedures).To(HaveKey(procedure), name)
	}
}

// TestHugeLists checks that a list that doesn't fit into its packet is refused before memory is allocated.
func TestHugeLists(t *testing.T) {
	for name, tc := range map[string]struct {
		procedure uint32
		call      func(*host) error
	}{
		"storage pools": {281, func(h *host) error { _, err := h.Pools(t.Context()); return err }},
		"node devices":  {285, func(h *host) error { _, err := h.HasInterface(t.Context(), "br0"); return err }},
		"volumes":       {282, func(h *host) error { _, err := h.PoolVolumes(t.Context(), "default"); return err }},
		"interfaces": {353, func(h *host) error {
			_, err := h.Addresses(t.Context(), "11111111-1111-4111-8111-111111111111", hypervisor.SourceLease)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			server := &hostile{answer: func(procedure, serial uint32) ([]byte, bool) {
				// Few enough that the test survives their allocation.
				return packet(procedure, typeReply, serial, 0, word(1000, 0)), procedure == tc.procedure
			}}
			NewWithT(t).Expect(tc.call(server.connected(t, time.Minute))).To(MatchError(ContainSubstring("are said to have 1000 elements")))
		})
	}
}

// TestHugeElements checks that elements of a list that don't fit into the packet, or are too long for a name, are
// refused before memory is allocated, and that the maximum is accepted.
func TestHugeElements(t *testing.T) {
	pools := func(h *host) error { _, err := h.Pools(t.Context()); return err }
	addresses := func(h *host) error {
		_, err := h.Addresses(t.Context(), "11111111-1111-4111-8111-111111111111", hypervisor.SourceLease)
		return err
	}
	volumes := func(h *host) error { _, err := h.PoolVolumes(t.Context(), "default"); return err }
	devices := func(h *host) error { _, err := h.HasInterface(t.Context(), "br0"); return err }
	domains := func(h *host) error { _, err := h.ListDomains(t.Context()); return err }
	long := func(length int) []byte { return text(strings.Repeat("x", length)) }
	uuid := make([]byte, 16)
	for name, tc := range map[string]struct {
		procedure uint32
		payload   []byte
		call      func(*host) error
		says      string
	}{
		"a domain's name":        {procDomains, slices.Concat(word(1), long(maxName+1), uuid, word(1), word(1)), domains, "1025 bytes"},
		"a pool's name":          {281, slices.Concat(word(1), long(maxName+1), uuid, word(1)), pools, "1025 bytes"},
		"a volume's name":        {282, slices.Concat(word(1), text("default"), long(1<<20), text("/v"), word(1)), volumes, "1048576 bytes"},
		"a volume's key":         {282, slices.Concat(word(1), text("default"), text("v"), long(maxPath+1), word(1)), volumes, "4097 bytes"},
		"a device's name":        {285, slices.Concat(word(1), long(maxName+1), word(1)), devices, "1025 bytes"},
		"a name without bytes":   {281, slices.Concat(word(1, 0x7ffffff0), uuid, word(1)), pools, "2147483632 bytes"},
		"addresses":              {353, slices.Concat(word(1), text("eth0"), word(0), word(0x7fffffff, 0, 0, 0)), addresses, "2147483647 elements"},
		"MAC addresses":          {353, slices.Concat(word(1), text("eth0"), word(0x7fffffff, 0, 0, 0)), addresses, "2147483647 elements"},
		"an address":             {353, slices.Concat(word(1), text("eth0"), word(1), text("52:54:00:00:00:01"), word(1, 0), long(maxName+1), word(24)), addresses, "1025 bytes"},
		"a list that is cut off": {281, slices.Concat(word(2), long(8), uuid, long(8), uuid[:4]), pools, "ends in the middle of a list"},
		"a list without an end":  {353, slices.Concat(word(1), text("eth0"), word(0)), addresses, "ends in the middle of a list"},
		"a name that is allowed": {281, slices.Concat(word(1), long(maxName), uuid, word(1)), pools, ""},
		"valid addresses":        {353, slices.Concat(word(1), text("eth0"), word(1), text("52:54:00:00:00:01"), word(1, 0), text("192.0.2.7"), word(24)), addresses, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &hostile{answer: func(procedure, serial uint32) ([]byte, bool) {
				return packet(procedure, typeReply, serial, 0, tc.payload), procedure == tc.procedure
			}}
			connection := server.connected(t, time.Minute)
			err := tc.call(connection)
			if tc.says != "" {
				g.Expect(err).To(MatchError(And(ContainSubstring(errNonsense.Error()), ContainSubstring(tc.says))))
				return
			}
			g.Expect(connection.conn.failure()).ToNot(HaveOccurred())
		})
	}
}

// FuzzShape checks that a reply that has a shape has all announced elements and texts.
func FuzzShape(f *testing.F) {
	f.Add(slices.Concat(word(1), text("eth0"), word(1), text("52:54:00:00:00:01"), word(1, 0), text("192.0.2.7"), word(24)))
	f.Add(word(1, 0x7fffffff))
	f.Fuzz(func(t *testing.T, reply []byte) {
		for _, list := range listProcedures {
			rest, err := list.walk(reply)
			if err == nil && len(rest)+4 > len(reply) {
				t.Errorf("%s: of %d bytes %d are left", list, len(reply), len(rest))
			}
		}
	})
}
