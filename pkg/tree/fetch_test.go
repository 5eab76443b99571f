package tree

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestKustomizeServerWithoutAnswer checks that a build does not wait forever for a server, and that other requests
// of the process keep their transport.
func TestKustomizeServerWithoutAnswer(t *testing.T) {
	t.Setenv("NO_PROXY", "127.0.0.1")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // connections stay in its backlog
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
			t.Error("error = nil, want an error")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the build still waits for an answer after 20 seconds")
	}
	if http.DefaultTransport != before || before.(*http.Transport).ResponseHeaderTimeout != 0 {
		t.Error("the build changed the transport of the whole process")
	}
}
