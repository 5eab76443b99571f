package prerequisite

import (
	"runtime"
	"strings"
	"sync"
	"testing"
)

// recorder is a test that records how it ends.
type recorder struct {
	testing.TB
	failed, skipped string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatal(args ...any) {
	r.failed, _ = args[0].(string)
	runtime.Goexit()
}

func (r *recorder) Skip(args ...any) {
	r.skipped, _ = args[0].(string)
	runtime.Goexit()
}

func TestPrerequisites(t *testing.T) {
	for _, tc := range []struct {
		name, ci, assets string
		need             func(testing.TB)
		fails, skips     string
	}{
		{name: "a program, in CI", ci: "true", need: func(tb testing.TB) { Program(tb, "no-such-program") }, fails: "no-such-program"},
		{name: "a program", need: func(tb testing.TB) { Program(tb, "no-such-program") }, skips: "NOT TESTED: no-such-program is not in the PATH"},
		{name: "nothing", ci: "true", need: func(tb testing.TB) { Program(tb, "go") }},
		{name: "the API server, in CI", ci: "1", need: APIServer, fails: "KUBEBUILDER_ASSETS"},
		{name: "the API server", need: APIServer, skips: "KUBEBUILDER_ASSETS"},
		{name: "no API server is missing", ci: "1", assets: "/somewhere", need: APIServer},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("CI", tc.ci)
			t.Setenv("KUBEBUILDER_ASSETS", tc.assets)
			r := &recorder{TB: t}
			var group sync.WaitGroup
			group.Go(func() { tc.need(r) })
			group.Wait()
			if !strings.Contains(r.failed, tc.fails) || (r.failed == "") != (tc.fails == "") {
				t.Errorf("the test failed with %q, want %q", r.failed, tc.fails)
			}
			if !strings.Contains(r.skipped, tc.skips) || (r.skipped == "") != (tc.skips == "") {
				t.Errorf("the test was skipped with %q, want %q", r.skipped, tc.skips)
			}
		})
	}
}
