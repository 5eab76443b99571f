package hypervisor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func TestOwner(t *testing.T) {
	tests := map[string]struct {
		metadata string
		want     *hypervisor.Owner
		failure  string
	}{
		"nothing":                {},
		"of others only":         {metadata: `<a:b xmlns:a="urn:a"><caplv:owner xmlns:caplv="` + hypervisor.OwnerNamespace + `" cluster="c" namespace="n" name="m"/></a:b>`},
		"same name, other place": {metadata: `<owner cluster="c" namespace="n" name="m"/>`},
		"next to others": {
			metadata: `<a:b xmlns:a="urn:a">x</a:b> <o:owner xmlns:o="` + hypervisor.OwnerNamespace + `" cluster="c" namespace="n" name="m"></o:owner>`,
			want:     &hypervisor.Owner{Cluster: "c", Namespace: "n", Name: "m"},
		},
		"incomplete": {metadata: `<owner xmlns="` + hypervisor.OwnerNamespace + `" cluster="c" namespace="n"/>`, failure: "lacks a cluster, namespace or name"},
		"cut off":    {metadata: `<owner xmlns="` + hypervisor.OwnerNamespace + `" cluster="c"`, failure: "reading a domain's metadata"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := hypervisor.ReadOwner(test.metadata)
			if test.failure != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.failure)))
				return
			}
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(got).To(Equal(test.want))
		})
	}

	for _, incomplete := range []hypervisor.Owner{{}, {Cluster: "c", Namespace: "n"}, {Cluster: "c", Name: "m"}, {Namespace: "n", Name: "m"}} {
		_, err := incomplete.Metadata()
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("the owner of a domain has no")), "%+v", incomplete)
	}
}

// TestErrorsInErrors checks that the text has each operation and reason once.
func TestErrorsInErrors(t *testing.T) {
	reaching := func(cause error) error {
		return &hypervisor.Error{Operation: "reaching host", Object: "a", Reason: hypervisor.ErrUnreachable, Cause: cause}
	}
	connecting := &hypervisor.Error{Operation: "connecting to", Object: "qemu+tls://a/system", Reason: hypervisor.ErrUnreachable, Cause: errors.New("no route to host")}
	denied := &hypervisor.Error{Operation: "connecting to", Object: "qemu+tls://a/system", Reason: hypervisor.ErrDenied, Cause: errors.New("unknown key")}
	for _, tc := range []struct {
		err  error
		want string
	}{
		{err: reaching(nil), want: "reaching host a: host can't be reached"},
		{err: reaching(errors.New("no session")), want: "reaching host a: host can't be reached: no session"},
		{err: reaching(reaching(errors.New("no session"))), want: "reaching host a: host can't be reached: no session"},
		{err: reaching(connecting), want: "reaching host a: connecting to qemu+tls://a/system: host can't be reached: no route to host"},
		{err: reaching(denied), want: "reaching host a: host can't be reached: connecting to qemu+tls://a/system: not allowed: unknown key"},
	} {
		g := NewWithT(t)
		g.Expect(tc.err).To(MatchError(tc.want))
		g.Expect(tc.err).To(MatchError(hypervisor.ErrUnreachable))
	}
}

func FuzzOwner(f *testing.F) {
	f.Add("cluster", "default", "machine-1")
	f.Add(`"><x/>`, "&amp;", "'\n\t")
	f.Fuzz(func(t *testing.T, cluster, namespace, name string) {
		owner := hypervisor.Owner{Cluster: cluster, Namespace: namespace, Name: name}
		metadata, err := owner.Metadata()
		if err != nil {
			return
		}
		got, err := hypervisor.ReadOwner(metadata)
		if err != nil || got == nil {
			t.Fatalf("%+v is written as %s, which is read as %v: %v", owner, metadata, got, err)
		}
		// Characters that XML can't express are written as U+FFFD. Kubernetes doesn't allow them in names.
		if !strings.ContainsRune(metadata, '\uFFFD') && *got != owner {
			t.Fatalf("%+v is written as %s, which is read as %+v", owner, metadata, *got)
		}
	})
}

func FuzzReadOwner(f *testing.F) {
	f.Add(`<o:owner xmlns:o="` + hypervisor.OwnerNamespace + `" cluster="c" namespace="n" name="m"/>`)
	f.Add(`<a><b/></a><c`)
	f.Fuzz(func(t *testing.T, metadata string) {
		owner, err := hypervisor.ReadOwner(metadata)
		if err == nil && owner != nil && (owner.Cluster == "" || owner.Namespace == "" || owner.Name == "") {
			t.Fatalf("%q has an incomplete owner: %+v", metadata, *owner)
		}
	})
}

func TestError(t *testing.T) {
	g := NewWithT(t)
	err := fmt.Errorf("reconciling: %w", &hypervisor.Error{
		Operation: "defining the domain", Object: "x", Reason: hypervisor.ErrTimeout, Cause: context.DeadlineExceeded,
	})
	g.Expect(err).To(MatchError("reconciling: defining the domain x: no answer in time: context deadline exceeded"))
	g.Expect(errors.Is(err, hypervisor.ErrTimeout)).To(BeTrue())
	g.Expect(errors.Is(err, context.DeadlineExceeded)).To(BeTrue())
	g.Expect(errors.Is(err, hypervisor.ErrNotFound)).To(BeFalse())
	g.Expect(&hypervisor.Error{Operation: "asking the host", Reason: hypervisor.ErrDenied}).To(MatchError("asking the host: not allowed"))
}

func TestUncertain(t *testing.T) {
	for reason, want := range map[error]bool{
		hypervisor.ErrTimeout: true, hypervisor.ErrUnreachable: true,
		hypervisor.ErrNotFound: false, hypervisor.ErrAlreadyExists: false, hypervisor.ErrNoSpace: false, hypervisor.ErrBusy: false,
		hypervisor.ErrDenied: false, hypervisor.ErrInvalid: false, hypervisor.ErrUnsupported: false, hypervisor.ErrOther: false,
	} {
		if got := hypervisor.Uncertain(&hypervisor.Error{Operation: "x", Reason: reason}); got != want {
			t.Errorf("%v: uncertain is %v, want %v", reason, got, want)
		}
	}
}

func TestCoalesce(t *testing.T) {
	g := NewWithT(t)
	in := make(chan string)
	out := hypervisor.Coalesce(in)
	for range 1000 {
		in <- "a" // no reader, and it doesn't block
		in <- "b"
	}
	g.Expect(<-out).To(Equal("a"))
	in <- "a"
	g.Expect(<-out).To(Equal("b"))
	g.Expect(<-out).To(Equal("a"))
	in <- "c"
	close(in)
	g.Eventually(out).WithTimeout(time.Minute).Should(BeClosed())
}
