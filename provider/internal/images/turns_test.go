package images

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

// TestTurns checks which requests have a turn. A request is the namespaces of the machines that want the image.
func TestTurns(t *testing.T) {
	a, b, c := []string{"a"}, []string{"b"}, []string{"c"}
	for name, tc := range map[string]struct {
		limit int
		want  [][]string
		// ends has the requests that end, in order.
		ends  []int
		begun []int
	}{
		"one at a time":                     {limit: 1, want: [][]string{a, a, b}, begun: []int{0}},
		"another namespace is next":         {limit: 1, want: [][]string{a, a, b}, ends: []int{0}, begun: []int{0, 1}},
		"half are left for others":          {limit: 4, want: [][]string{a, a, a, a, a}, begun: []int{0, 1}},
		"others use the other half":         {limit: 4, want: [][]string{a, a, a, b, c}, begun: []int{0, 1, 3, 4}},
		"the fewest turns are next":         {limit: 4, want: [][]string{a, b, a, b, b, a, c}, ends: []int{0}, begun: []int{0, 1, 2, 3, 6}},
		"an image wanted by two namespaces": {limit: 4, want: [][]string{a, a, a, {"a", "b"}}, begun: []int{0, 1, 3}},
		"an unwanted image waits":           {limit: 2, want: [][]string{{}, a}, begun: []int{1}},
		"a waiting request may end":         {limit: 2, want: [][]string{a, a, a}, ends: []int{1, 0}, begun: []int{0, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			of := &turns{limit: tc.limit}
			var all []*turn
			for _, namespaces := range tc.want {
				next := &turn{namespaces: func() []string { return namespaces }, begun: make(chan struct{})}
				of.waiting = append(of.waiting, next)
				of.begin()
				all = append(all, next)
			}
			for _, ends := range tc.ends {
				of.end(all[ends])
			}
			var begun []int
			for i, turn := range all {
				if turn.namespace != "" {
					begun = append(begun, i)
				}
			}
			NewWithT(t).Expect(begun).To(Equal(tc.begun))
			for _, turn := range all {
				if !slices.Contains(tc.ends, slices.Index(all, turn)) {
					of.end(turn)
				}
			}
			NewWithT(t).Expect(of.running).To(BeEmpty())
			NewWithT(t).Expect(of.waiting).To(BeEmpty())
		})
	}
}

// TestOneNamespaceLeavesTurnsToOthers checks a namespace with many images on slow servers.
func TestOneNamespaceLeavesTurnsToOthers(t *testing.T) {
	f := newFixture(t, newHosts("one", "two", "three"), Options{PerHost: 2, InAll: 4, MinRate: 1, IdleTimeout: time.Hour})
	content := qcow2Image(nil)
	begun := make(chan struct{}, 100)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("n") {
			begun <- struct{}{}
			<-r.Context().Done()
			return
		}
		serving(content)(w, r)
	})
	for i := range 12 {
		wish := wishFor(server.URL+"?n="+strconv.Itoa(i), content)
		wish.Host = []string{"one", "two", "three"}[i%3]
		_, err := f.Ensure(t.Context(), wish, types.NamespacedName{Namespace: "attacker", Name: strconv.Itoa(i)})
		f.Expect(err).To(HaveOccurred())
	}
	<-begun
	<-begun
	queued := 0
	for i := range 12 {
		wish := wishFor(server.URL+"?n="+strconv.Itoa(i), content)
		wish.Host = []string{"one", "two", "three"}[i%3]
		if f.isQueued(wish, types.NamespacedName{Namespace: "attacker", Name: strconv.Itoa(i)}) {
			queued++
		}
	}
	f.Expect(queued).To(Equal(10))
	for _, host := range []string{"one", "two", "three"} {
		wish := wishFor(server.URL, content)
		wish.Host = host
		f.Eventually(func() error {
			_, err := f.Ensure(t.Context(), wish, machine(1))
			return err
		}).WithTimeout(patience).Should(Succeed())
	}
}

// silentServer starts a server that sends nothing, and returns a channel with an element for each request.
func silentServer(t *testing.T) (url string, asked <-chan struct{}) {
	t.Helper()
	requests := make(chan struct{}, 100)
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		requests <- struct{}{}
		<-r.Context().Done()
	})
	return server.URL, requests
}

// TestCopiesHaveTheTurnsOfTransfers checks that the limits of a host and a namespace apply to copies and transfers
// together. Copies don't count in the limit for all hosts.
func TestCopiesHaveTheTurnsOfTransfers(t *testing.T) {
	f := newFixture(t, newHosts("one", "two"), Options{PerHost: 2, InAll: 1, MinRate: 1, IdleTimeout: time.Hour})
	url, asked := silentServer(t)
	wish, downloader := wishFor(url, nil), types.NamespacedName{Namespace: "a", Name: "m"}
	_, err := f.Ensure(t.Context(), wish, downloader)
	f.Expect(err).To(HaveOccurred())
	<-asked

	begun, finish := make(chan string, 10), make(chan struct{})
	var ended sync.WaitGroup
	copyImage := func(host, namespace string) {
		ended.Go(func() {
			_ = f.Copy(t.Context(), host, namespace, func(context.Context) error {
				begun <- host + " " + namespace
				<-finish
				return nil
			})
		})
	}
	waiting := func() int {
		f.lock.Lock()
		defer f.lock.Unlock()
		return len(f.turns["one"].waiting) + len(begun)
	}
	copyImage("one", "a")
	f.Eventually(waiting).WithTimeout(patience).Should(Equal(1))
	f.Expect(begun).To(BeEmpty(), "its namespace has half of the host's turns")
	copyImage("one", "b")
	f.Expect(<-begun).To(Equal("one b"))
	copyImage("one", "c")
	f.Eventually(waiting).WithTimeout(patience).Should(Equal(2))
	f.Expect(begun).To(BeEmpty(), "the host's turns are taken")
	copyImage("two", "c")
	f.Expect(<-begun).To(Equal("two c"))
	f.Forget(downloader)
	f.Expect(<-begun).To(Equal("one a"))
	close(finish)
	ended.Wait()
	f.stop()
	f.Expect(f.turns).To(BeEmpty())
}

// TestCopiesEndWithTheStore checks that a copy that waits for its turn isn't made when the store stops.
func TestCopiesEndWithTheStore(t *testing.T) {
	f := newFixture(t, newHosts("one"), Options{PerHost: 1})
	finish, begun, ended := make(chan struct{}), make(chan struct{}, 2), make(chan error, 2)
	run := func(context.Context) error {
		begun <- struct{}{}
		<-finish
		return nil
	}
	go func() { ended <- f.Copy(context.Background(), "one", "a", run) }()
	<-begun
	go func() { ended <- f.Copy(context.Background(), "one", "b", run) }()
	f.stop()
	f.Eventually(ended).WithTimeout(patience).Should(Receive(MatchError(context.Canceled)))
	close(finish)
	f.Expect(<-ended).To(Succeed())
}

// TestSecondNamespaceStartsQueuedTransfer checks that a transfer that waits because its namespace has half of the turns
// starts when a machine of another namespace wants the same image.
func TestSecondNamespaceStartsQueuedTransfer(t *testing.T) {
	f := newFixture(t, newHosts("one"), Options{PerHost: 2, MinRate: 1, IdleTimeout: time.Hour})
	url, asked := silentServer(t)
	first, second := wishFor(url+"?n=1", nil), wishFor(url+"?n=2", nil)
	_, err := f.Ensure(t.Context(), first, types.NamespacedName{Namespace: "a", Name: "1"})
	f.Expect(err).To(HaveOccurred())
	<-asked
	f.Expect(f.isQueued(second, types.NamespacedName{Namespace: "a", Name: "2"})).To(BeTrue())
	_, err = f.Ensure(t.Context(), second, types.NamespacedName{Namespace: "b", Name: "1"})
	f.Expect(err).To(HaveOccurred())
	f.Eventually(asked).WithTimeout(patience).Should(Receive())
}

// isQueued waits until a transfer has started or is queued, and reports whether it is queued.
func (f *fixture) isQueued(wish Wish, machine types.NamespacedName) bool {
	f.t.Helper()
	f.Eventually(func() phase {
		_, _ = f.Ensure(f.t.Context(), wish, machine)
		f.lock.Lock()
		defer f.lock.Unlock()
		return f.tasks[wish.key()].phase
	}).WithTimeout(patience).Should(BeElementOf(queued, transferring))
	_, err := f.Ensure(f.t.Context(), wish, machine)
	var waits *Transferring
	f.Expect(err).To(BeAssignableToTypeOf(waits))
	return err.(*Transferring).Queued //nolint:errorlint,forcetypeassert // checked above
}
