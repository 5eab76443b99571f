package tree

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestKustomizeServerThatNeverAnswers: a build does not wait forever, and other requests of the process
// have the transport that they had.
func TestKustomizeServerThatNeverAnswers(t *testing.T) {
	t.Setenv("NO_PROXY", "127.0.0.1")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // connections wait in its backlog
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	dir := t.TempDir()
	text := "resources: ['http://" + listener.Addr().String() + "/base.yaml?timeout=1s']\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	answerTime = 100 * time.Millisecond
	t.Cleanup(func() { answerTime = 30 * time.Second })
	before := http.DefaultTransport
	failed := make(chan error, 1)
	go func() {
		_, err := source.Kustomize(".")
		failed <- err
	}()
	select {
	case err := <-failed:
		if err == nil {
			t.Error("there is no error")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the build waits for an answer")
	}
	if http.DefaultTransport != before || before.(*http.Transport).ResponseHeaderTimeout != 0 {
		t.Error("the build changed the transport of the whole process")
	}
}
