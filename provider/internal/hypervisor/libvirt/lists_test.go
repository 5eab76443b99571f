package libvirt

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// lists are the methods of the library that are called here and return a list, with their procedures.
var lists = map[string]uint32{
	"ConnectListAllDomains": procDomains, "ConnectListAllStoragePools": 281, "StoragePoolListAllVolumes": 282,
	"ConnectListAllNodeDevices": 285, "DomainInterfaceAddresses": 353,
}

// TestGuardKnowsAllLists: the library makes room for as many elements as a host says that there are, and no
// recover helps a process that has no room. Whatever call is added here, the guard has to know its list.
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
		g.Expect(lists).To(HaveKey(name), "a call whose answer is a list: add it here, and to listProcedures")
	}
	for name, procedure := range lists {
		g.Expect(found).To(HaveKey(name), "no longer called")
		g.Expect(listProcedures).To(HaveKey(procedure), name)
	}
}

// TestHugeLists: a list that can't be in its packet is refused before room is made for it.
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
				// Few enough that the test would get over it.
				return packet(procedure, typeReply, serial, 0, word(1000, 0)), procedure == tc.procedure
			}}
			NewWithT(t).Expect(tc.call(server.connected(t, time.Minute))).To(MatchError(ContainSubstring("is said to have 1000 elements")))
		})
	}
}
