package images

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

const (
	hush = "hush-hush"
	// basicHush is user:hush-hush.
	basicHush = "Basic dXNlcjpodXNoLWh1c2g="
)

// serveTLS starts a server with a certificate of a private authority, and returns the authority's certificate.
func serveTLS(t *testing.T, handler http.HandlerFunc) (url string, ca []byte) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// guarded serves only requests with the credentials.
func guarded(authorization string, content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != authorization {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		serving(content)(w, r)
	}
}

// access returns the access of a namespace with the data of a Secret.
func access(namespace types.UID, data map[string]string) *Access {
	raw := map[string][]byte{}
	for key, value := range data {
		raw[key] = []byte(value)
	}
	return &Access{Namespace: namespace, Secret: "server", Read: func(context.Context) (Credentials, error) { return readCredentials(raw) }}
}

// TestCredentials checks downloads from a server with a private authority that requires credentials.
func TestCredentials(t *testing.T) {
	content := qcow2Image(nil)
	for name, tc := range map[string]struct {
		asks    string
		data    map[string]string
		withCA  bool
		message string
	}{
		"the authority alone": {withCA: true},
		"a user":              {asks: basicHush, withCA: true, data: map[string]string{"username": "user", "password": hush}},
		"a token":             {asks: "Bearer " + hush, withCA: true, data: map[string]string{"token": hush + "\n"}},
		"another token":       {asks: "Bearer other", withCA: true, data: map[string]string{"token": hush}, message: "the server answers 401"},
		"another authority":   {asks: "Bearer " + hush, data: map[string]string{"token": hush}, message: "certificate signed by unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newHosts("one"), Options{})
			url, ca := serveTLS(t, guarded(tc.asks, content))
			wish := wishFor(url, content)
			data := map[string]string{}
			for key, value := range tc.data {
				data[key] = value
			}
			if tc.withCA {
				data["ca.crt"] = string(ca)
			}
			wish.Access = access("team", data)
			if tc.message != "" {
				f.Expect(f.failure(wish, machine(1))).To(MatchError(And(ContainSubstring(tc.message), Not(ContainSubstring(hush)))))
				return
			}
			image := f.eventually(wish, machine(1))
			f.Expect(f.fakes.hosts["one"].Content(image.VolumeRef)).To(Equal(content))
		})
	}
}

// TestCredentialsAreForOneServer checks that no other server gets the credentials after a redirect, not even on another
// port of the same host, and that the Secret's authority is trusted for the one server only.
func TestCredentialsAreForOneServer(t *testing.T) {
	content := qcow2Image(nil)
	var seen atomic.Value
	seen.Store("nobody")
	elsewhere, ca := serveTLS(t, func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r.Header.Get("Authorization"))
		if r.URL.Path == "/back" {
			http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
			return
		}
		serving(content)(w, r)
	})
	var own string
	own, _ = serveTLS(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != basicHush:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/away":
			http.Redirect(w, r, elsewhere+"/image", http.StatusTemporaryRedirect)
		case r.URL.Path == "/plain":
			http.Redirect(w, r, "http://"+r.Host+"/image", http.StatusFound)
		case r.URL.Path == "/around":
			http.Redirect(w, r, elsewhere+"/back?to="+own+"/image", http.StatusFound)
		default:
			serving(content)(w, r)
		}
	})
	credentials := map[string]string{"ca.crt": string(ca), "username": "user", "password": hush}
	trusting := func(f *fixture) *fixture {
		all, err := readCredentials(map[string][]byte{"ca.crt": ca})
		f.Expect(err).ToNot(HaveOccurred())
		f.client.Transport.(discreet).TLSClientConfig = &tls.Config{RootCAs: all.roots, MinVersion: tls.VersionTLS12}
		return f
	}
	wish := wishFor(own+"/away", content)
	wish.Access = access("team", credentials)

	f := newFixture(t, newHosts("one"), Options{})
	f.Expect(f.failure(wish, machine(1))).To(MatchError(ContainSubstring("certificate signed by unknown authority")), "the other server needs a certificate of the system's authorities")
	f.Expect(seen.Load()).To(Equal("nobody"))

	f = trusting(newFixture(t, newHosts("one"), Options{}))
	f.eventually(wish, machine(1))
	f.Expect(seen.Load()).To(BeEmpty())

	f = trusting(newFixture(t, newHosts("one"), Options{}))
	wish.URL = own + "/around"
	f.eventually(wish, machine(1))
	f.Expect(seen.Load()).To(BeEmpty())

	f = newFixture(t, newHosts("one"), Options{})
	wish.URL = own + "/plain"
	f.Expect(f.failure(wish, machine(1))).To(MatchError(ContainSubstring("redirected from https to http")))
	wish.URL = strings.Replace(own, "https", "http", 1)
	f.Expect(f.failedWith(wish, machine(2))).To(MatchError(ContainSubstring("credentials are sent with https only")))
}

// failedWith waits until a transfer has failed, and returns the error that users see.
func (f *fixture) failedWith(wish Wish, name types.NamespacedName) error {
	f.t.Helper()
	var failed *Failed
	f.Eventually(func() bool {
		_, err := f.Ensure(f.t.Context(), wish, name)
		return errors.As(err, &failed)
	}).WithTimeout(patience).Should(BeTrue())
	return failed
}

// TestImagesOfOneNamespace checks that the URL and the checksum of an existing image don't give access to it without
// credentials for its server, and don't reveal whether it exists.
func TestImagesOfOneNamespace(t *testing.T) {
	content := qcow2Image(nil)
	url, ca := serveTLS(t, guarded("Bearer "+hush, content))
	f := newFixture(t, newHosts("one"), Options{})
	wish := wishFor(url, content)
	wish.Access = access("team", map[string]string{"ca.crt": string(ca), "token": hush})
	image := f.eventually(wish, machine(1))

	without, wrong, again := wish, wish, wish
	without.Access = nil
	wrong.Access = access("other", map[string]string{"ca.crt": string(ca), "token": "guess"})
	f.Expect(f.failure(without, machine(2))).To(MatchError(ContainSubstring("certificate signed by unknown authority")))
	f.Expect(f.failure(wrong, machine(3))).To(MatchError(ContainSubstring("the server answers 401")))

	again.Access = &Access{Namespace: "team", Secret: "gone", Read: func(context.Context) (Credentials, error) {
		return Credentials{}, errors.New("the credentials were read")
	}}
	f.Expect(f.Ensure(t.Context(), again, machine(4))).To(Equal(image), "without its server")
	wrong.Access = access("other", map[string]string{"ca.crt": string(ca), "token": hush})
	f.stop()

	other := newFixture(t, f.fakes, Options{})
	f.Expect(other.eventually(wrong, machine(3)).Name).ToNot(Equal(image.Name))
	f.Expect(f.volumes("one")).To(ConsistOf(append(whole(wish), whole(wrong)...)))
	for _, name := range []string{wish.marker(), wrong.marker(), image.Name} {
		f.Expect(volumeName.MatchString(name)).To(BeTrue(), "Collect recognizes the name: %s", name)
	}
	f.Expect(wantedMarkers([]Wish{again})).To(And(HaveKey(wish.marker()), Not(HaveKey(wrong.marker()))))
}

// TestCredentialsAreReadForEachAttempt also checks that errors of the credentials are shown.
func TestCredentialsAreReadForEachAttempt(t *testing.T) {
	content := qcow2Image(nil)
	url, ca := serveTLS(t, guarded("Bearer "+hush, content))
	f := newFixture(t, newHosts("one"), Options{})
	wish := wishFor(url, content)
	good := access("team", map[string]string{"ca.crt": string(ca), "token": hush})
	var available atomic.Bool
	wish.Access = &Access{Namespace: "team", Secret: "server", Read: func(ctx context.Context) (Credentials, error) {
		if !available.Load() {
			return Credentials{}, errors.New("the Secret team/server doesn't exist")
		}
		return good.Read(ctx)
	}}
	f.Expect(f.failedWith(wish, machine(1))).To(MatchError("downloading " + url + " failed and is retried: reading the credentials: the Secret team/server doesn't exist"))
	available.Store(true)
	f.eventually(wish, machine(1))
}

// TestServersThatRepeatCredentials checks that errors don't contain credentials that a server sends back.
func TestServersThatRepeatCredentials(t *testing.T) {
	for name, answer := range map[string]string{
		"as a status": "HTTP/1.1 401 %s\r\n\r\n", "as a header": "HTTP/1.1 200 OK\r\n%s\r\n\r\n", "not as HTTP": "%s\r\n\r\n", "as a length": "HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n",
		"as a redirect": "HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1:1/%s\r\n\r\n", "as an encoding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: %s\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newHosts("one"), Options{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = fmt.Fprintf(conn, answer, r.Header.Get("Authorization"))
				_ = conn.Close()
			}))
			server.StartTLS()
			t.Cleanup(server.Close)
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			wish := wishFor(server.URL, nil)
			wish.Access = access("team", map[string]string{"ca.crt": string(ca), "token": hush})
			f.Expect(f.failure(wish, machine(1))).To(MatchError(Not(ContainSubstring(hush))))
		})
	}
}

func TestReadCredentials(t *testing.T) {
	for name, tc := range map[string]struct {
		data    map[string]string
		message string
	}{
		"nothing":              {message: "has no credentials: add username and password, or token, or ca.crt"},
		"other keys":           {data: map[string]string{"tls.key": hush}, message: "has no credentials"},
		"a user alone":         {data: map[string]string{"username": hush}, message: "has only one of username and password"},
		"a password alone":     {data: map[string]string{"password": hush}, message: "has only one of username and password"},
		"both ways":            {data: map[string]string{"username": "a", "password": hush, "token": hush}, message: "keep one of them"},
		"a colon":              {data: map[string]string{"username": "a:" + hush, "password": hush}, message: "a colon in username"},
		"two lines":            {data: map[string]string{"token": hush + "\r\nX-Other: " + hush}, message: "a line break"},
		"no certificate":       {data: map[string]string{"ca.crt": hush}, message: "no certificate in PEM under ca.crt"},
		"a key in place of it": {data: map[string]string{"ca.crt": "-----BEGIN PRIVATE KEY-----\naHVzaC1odXNo\n-----END PRIVATE KEY-----\n"}, message: "no certificate in PEM under ca.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := access("team", tc.data).Read(t.Context())
			NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring(tc.message), Not(ContainSubstring(hush)))))
		})
	}
}

// FuzzReadCredentials checks that the credentials of any Secret can be sent or are an error.
func FuzzReadCredentials(f *testing.F) {
	f.Add("user", hush, "", "")
	f.Add("", "", hush+"\n", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	f.Fuzz(func(t *testing.T, user, password, token, ca string) {
		credentials, err := access("team", map[string]string{"username": user, "password": password, "token": token, "ca.crt": ca}).Read(t.Context())
		if err == nil && strings.ContainsAny(credentials.authorization, "\r\n\x00") {
			t.Errorf("%q", credentials.authorization)
		}
		if err == nil && user+password != "" && credentials.authorization != "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+password)) {
			t.Errorf("%q and %q are sent as %q", user, password, credentials.authorization)
		}
	})
}
