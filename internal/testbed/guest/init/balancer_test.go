package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// TestUserData checks that files are written, and that unsupported parts are errors.
func TestUserData(t *testing.T) {
	tests := []struct{ name, content, err string }{
		{"a load balancer's user data", "#cloud-config\nwrite_files: [{path: /usr/local/sbin/x, permissions: '0755', content: \"one\\n\"}]\nruncmd: [[systemctl, daemon-reload]]\n", ""},
		{"another format", "#!/bin/sh\n", "isn't for cloud-init"},
		{"nothing", "", "isn't for cloud-init"},
		{"an unsupported field", "#cloud-config\npackages: [haproxy]\n", "field packages not found"},
		{"invalid permissions", "#cloud-config\nwrite_files: [{path: /x, permissions: '9'}]\n", "the permissions of /x"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			root := t.TempDir()
			parsed, err := parseUserData([]byte(test.content))
			if err == nil {
				err = parsed.write(root)
			}
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).ToNot(HaveOccurred())
			file := filepath.Join(root, "usr/local/sbin/x")
			g.Expect(os.ReadFile(file)).To(BeEquivalentTo("one\n"))
			info, err := os.Stat(file)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o755)))
			g.Expect(parsed.RunCmd).To(Equal([][]string{{"systemctl", "daemon-reload"}}))
		})
	}
}

func TestRunCommandRefuses(t *testing.T) {
	g := NewWithT(t)
	g.Expect(runCommand([]string{"systemctl", "daemon-reload"})).To(Succeed())
	g.Expect(runCommand([]string{"apt-get", "install", "haproxy"})).To(MatchError(ContainSubstring("isn't supported")))
	unit := filepath.Join(t.TempDir(), "unit")
	g.Expect(os.WriteFile(unit, []byte("[Service]\nExecStart=/bin/true\n"), 0o600)).To(Succeed())
	g.Expect(startService(unit)).To(MatchError(ContainSubstring("must have ExecStart and Restart=always")))
}

// TestAPIServer checks that the API server of a guest is ready, has a certificate, and answers with its name.
func TestAPIServer(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewUnstartedServer(apiServer("name"))
	certificate, err := selfSigned()
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(certificate.Certificate).To(HaveLen(1))
	server.StartTLS()
	defer server.Close()
	for path, want := range map[string]string{"/readyz": "ok", "/": "name", "/version": "name"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		g.Expect(err).ToNot(HaveOccurred())
		response, err := server.Client().Do(request)
		g.Expect(err).ToNot(HaveOccurred())
		content, err := io.ReadAll(response.Body)
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		g.Expect(string(content)).To(Equal(want), path)
	}
}
