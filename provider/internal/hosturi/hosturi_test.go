package hosturi_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
)

func TestParse(t *testing.T) {
	tests := map[string]hosturi.URI{
		"qemu+tls://host-1.example.com/system":           {Driver: hosturi.QEMU, Transport: hosturi.TLS, Host: "host-1.example.com", Port: 16514, Path: "/system"},
		"qemu+tls://[2001:db8::1]:16515/system":          {Driver: hosturi.QEMU, Transport: hosturi.TLS, Host: "2001:db8::1", Port: 16515, Path: "/system"},
		"qemu+ssh://caplv@192.0.2.7/system":              {Driver: hosturi.QEMU, Transport: hosturi.SSH, Host: "192.0.2.7", Port: 22, User: "caplv", Path: "/system"},
		"qemu+ssh://caplv@host:2222/session?socket=/s/x": {Driver: hosturi.QEMU, Transport: hosturi.SSH, Host: "host", Port: 2222, User: "caplv", Path: "/session", Socket: "/s/x"},
		"qemu+unix:///system":                            {Driver: hosturi.QEMU, Transport: hosturi.Unix, Path: "/system"},
		"qemu+unix:///session?socket=/run/user/1/sock":   {Driver: hosturi.QEMU, Transport: hosturi.Unix, Path: "/session", Socket: "/run/user/1/sock"},
		"test:///default":                                {Driver: hosturi.Test, Transport: hosturi.Unix, Path: "/default"},
		"test:///default?socket=/tmp/libvirt-sock":       {Driver: hosturi.Test, Transport: hosturi.Unix, Path: "/default", Socket: "/tmp/libvirt-sock"},
	}
	for raw, want := range tests {
		t.Run(raw, func(t *testing.T) {
			g := NewWithT(t)
			got, err := hosturi.Parse(raw)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(got).To(Equal(want))

			again, err := hosturi.Parse(got.String())
			g.Expect(err).ToNot(HaveOccurred(), got.String())
			g.Expect(again).To(Equal(want))
		})
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct{ raw, message string }{
		{"", "scheme \"\" isn't one of"},
		{"host", "scheme \"\" isn't one of"},
		{"xen+tls://host/system", "scheme \"xen+tls\" isn't one of"},
		{"qemu:///system", "isn't one of qemu+tls, qemu+ssh, qemu+unix and test"},
		{"qemu+tcp://host/system", "isn't one of"},
		{"qemu+tls:///system", "no host"},
		{"qemu+tls:host", "not a libvirt URI"},
		{"qemu+tls://host/system#x", "not a libvirt URI"},
		{"qemu+tls://300.1.1.1/system", "neither an IP address nor a DNS name"},
		{"qemu+tls://UPPER_case/system", "neither an IP address nor a DNS name"},
		{"qemu+tls://host:0/system", "isn't a number from 1 to 65535"},
		{"qemu+tls://host:/system", "no port after the colon"},
		{"qemu+tls://host:99999/system", "isn't a number from 1 to 65535"},
		{"qemu+tls://host", "isn't /system"},
		{"qemu+tls://host/etc/passwd", "isn't /system"},
		{"qemu+tls://user@host/system", "has no user"},
		{"qemu+tls://host/system?no_verify=1", "parameter \"no_verify\" isn't supported"},
		{"qemu+tls://host/system?socket=/s", "has no socket"},
		{"qemu+ssh://host/system", "no user"},
		{"qemu+ssh://-oProxyCommand@host/system", "begins with '-'"},
		{"qemu+ssh://a%20b@host/system", "characters other than letters"},
		{"qemu+ssh://user:secret@host/system", "store credentials in the Secret"},
		{"qemu+tls://user:secret@host/system", "store credentials in the Secret"},
		{"qemu+ssh://user@host/system?command=sh", "parameter \"command\" isn't supported"},
		{"qemu+ssh://user@host/system?socket=relative", "isn't one absolute path"},
		{"qemu+ssh://user@host/system?socket=/a/../b", "isn't one absolute path"},
		{"qemu+ssh://user@host/system?socket=/a&socket=/b", "isn't one absolute path"},
		{"qemu+unix://host/system", "three slashes and no host"},
		{"test:///etc/passwd", "isn't /default"},
		{"test://host/default", "three slashes and no host"},
	}
	for _, test := range tests {
		t.Run(test.raw, func(t *testing.T) {
			g := NewWithT(t)
			_, err := hosturi.Parse(test.raw)
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
			g.Expect(err.Error()).ToNot(ContainSubstring("secret"))
		})
	}
}

func TestNeedsIdentityAndConnectURI(t *testing.T) {
	tests := map[string]struct {
		needsIdentity bool
		connect       string
	}{
		"qemu+tls://host/system":   {true, "qemu:///system"},
		"qemu+ssh://u@host/system": {true, "qemu:///system"},
		"qemu+unix:///session":     {false, "qemu:///session"},
		"test:///default":          {false, "test:///default"},
	}
	for raw, want := range tests {
		t.Run(raw, func(t *testing.T) {
			g := NewWithT(t)
			uri, err := hosturi.Parse(raw)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(uri.NeedsIdentity()).To(Equal(want.needsIdentity))
			g.Expect(uri.ConnectURI()).To(Equal(want.connect))
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"qemu+tls://host:16514/system", "qemu+ssh://user:password@[::1%25eth0]/system?socket=/a%2fb",
		"qemu+unix:///system?socket=/run/libvirt/libvirt-sock", "test:///default", "qemu+tls://[::]:/system?&;=",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		uri, err := hosturi.Parse(raw)
		if err != nil {
			return
		}
		written := uri.String()
		again, err := hosturi.Parse(written)
		if err != nil {
			t.Fatalf("%q is read as %+v, and written as %q, which can't be read: %v", raw, uri, written, err)
		}
		if again != uri {
			t.Fatalf("%q is read as %+v, and written as %q, which is read as %+v", raw, uri, written, again)
		}
		if uri.Transport == hosturi.Unix && (uri.Host != "" || uri.User != "" || uri.Port != 0) {
			t.Fatalf("%q has a host, user or port: %+v", raw, uri)
		}
		if uri.Transport == hosturi.SSH && (uri.User == "" || strings.HasPrefix(uri.User, "-")) {
			t.Fatalf("%q would pass an option to ssh: %+v", raw, uri)
		}
	})
}
