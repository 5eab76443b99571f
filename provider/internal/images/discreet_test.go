package images

import (
	"bufio"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// answering starts a server that sends the same bytes for each request. It returns the address.
func answering(t *testing.T, answer string) string {
	t.Helper()
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = conn.Write([]byte(answer))
			}
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

// TestHostileAnswers checks that errors contain neither credentials that a server or a proxy sends back, nor addresses
// of redirects.
func TestHostileAnswers(t *testing.T) {
	const secret = "hush"
	for name, tc := range map[string]struct {
		answer  string
		proxy   bool
		message string
	}{
		"a Location that can't be read":      {answer: "HTTP/1.1 302 Found\r\nLocation: http://user:hush@[::1/x?token=hush\r\n\r\n", message: "the server answers 302 Found with a header Location that can't be read"},
		"a Location with a bad escape":       {answer: "HTTP/1.1 307 hush\r\nLocation: /%hush\r\n\r\n", message: "Location that can't be read"},
		"a Location with a bad port":         {answer: "HTTP/1.1 302 Found\r\nLocation: http://user:hush@127.0.0.1:hush/\r\n\r\n", message: "Location that can't be read"},
		"a Location without a server":        {answer: "HTTP/1.1 302 Found\r\nLocation: http://user:hush@127.0.0.1:1/x?token=hush#hush\r\n\r\n", message: "connection refused"},
		"another scheme":                     {answer: "HTTP/1.1 302 Found\r\nLocation: hush://user:hush@host/?hush\r\n\r\n", message: "redirected to a scheme other than https and http"},
		"not HTTP":                           {answer: "token=hush user:hush@host\r\n\r\n", message: "malformed HTTP"},
		"not HTTP, with a quote":             {answer: "a \" hush \\\" hush\r\n\r\n", message: "malformed HTTP"},
		"no status":                          {answer: "HTTP/1.1 hush\r\n\r\n", message: "malformed HTTP"},
		"no header":                          {answer: "HTTP/1.1 200 OK\r\ntoken hush\r\n\r\n", message: "the answer has a header that can't be read"},
		"no length":                          {answer: "HTTP/1.1 200 OK\r\nContent-Length: hush\r\n\r\n", message: "bad Content-Length"},
		"another transfer encoding":          {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: hush\r\n\r\n", message: "unsupported transfer encoding"},
		"another content encoding":           {answer: "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Encoding: hush\r\n\r\nhush", message: "header Content-Encoding"},
		"another status":                     {answer: "HTTP/1.1 403 hush\r\n\r\n", message: "the server answers 403 Forbidden"},
		"a proxy that quotes the request":    {proxy: true, answer: "HTTP/1.1 407 user:hush isn't it\r\n\r\n", message: "the proxy answers 407 Proxy Authentication Required"},
		"a proxy without HTTP":               {proxy: true, answer: "user:hush\r\n\r\n", message: "malformed HTTP"},
		"a proxy that sends a bad header":    {proxy: true, answer: "HTTP/1.1 200 OK\r\nuser hush\r\n\r\n", message: "the answer has a header that can't be read"},
		"a proxy that closes the connection": {proxy: true, message: "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newHosts("one"), Options{})
			address := answering(t, tc.answer)
			image := "http://user:" + secret + "@" + address + "/image?token=" + secret
			if tc.proxy {
				f.client.Transport.(discreet).Proxy = http.ProxyURL(&url.URL{Scheme: "http", User: url.UserPassword("user", secret), Host: address})
				image = "https://user:" + secret + "@images.invalid/image?token=" + secret
			}
			err := f.failure(wishFor(image, nil), machine(1))
			f.Expect(err).To(MatchError(And(ContainSubstring(tc.message), Not(ContainSubstring(secret)), Not(ContainSubstring("user")))))
		})
	}
}

// TestUnreachableProxy checks that the error may have the address of the proxy, but not the credentials for it.
func TestUnreachableProxy(t *testing.T) {
	f := newFixture(t, newHosts("one"), Options{IdleTimeout: time.Minute})
	f.client.Transport.(discreet).Proxy = http.ProxyURL(&url.URL{Scheme: "http", User: url.UserPassword("user", "hush"), Host: "127.0.0.1:1"})
	for number, image := range []string{"http://images.invalid/image", "https://images.invalid/image"} {
		f.Expect(f.failure(wishFor(image, nil), machine(number))).To(MatchError(And(
			ContainSubstring("proxyconnect"), ContainSubstring("connection refused"), Not(ContainSubstring("hush")), Not(ContainSubstring("user")))))
	}
}
