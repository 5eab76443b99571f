package oci

import (
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
)

// TestOCILoopback checks that only local registries are used without TLS.
func TestOCILoopback(t *testing.T) {
	for host, plain := range map[string]bool{"[::1]:5000": true, "127.0.0.1:5000": true, "localhost": true, "[2001:db8::1]:5000": false, "registry.example.com": false} {
		s, _, err := open("oci://"+host+"/acme/capl", store.Options{})
		if err != nil || s.(*repo).repository.PlainHTTP != plain {
			t.Errorf("%s: %v, want plain HTTP %v", host, err, plain)
		}
	}
}
