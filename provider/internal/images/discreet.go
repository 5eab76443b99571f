package images

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
)

// Errors of downloads come into conditions, which more people read than those who know the credentials that
// are in URLs of images, of redirects and of proxies. net/http puts much into its errors of what servers and
// proxies have sent, and they may send what they were sent themselves.

// refusal is an error whose text was written here, and may be shown as it is.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

func refused(format string, values ...any) error {
	return &refusal{text: fmt.Sprintf(format, values...)}
}

// discreet is a transport that refuses redirects which can't be followed before http.Client does, which says
// all of where they lead to. It also refuses what images may not come from.
type discreet struct {
	*http.Transport
	sources Sources
}

func (t discreet) RoundTrip(request *http.Request) (*http.Response, error) {
	proxy, err := t.Proxy(request)
	if err != nil {
		return nil, err
	}
	if err := t.sources.checkRequest(request, proxy != nil); err != nil {
		return nil, err
	}
	if proxy != nil {
		request = request.WithContext(context.WithValue(request.Context(), proxiedKey{}, true))
	}
	response, err := t.Transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if _, err := response.Location(); response.StatusCode/100 == 3 && err != nil && !errors.Is(err, http.ErrNoLocation) {
		_ = response.Body.Close()
		return nil, refused("the server answers %d %s with a header Location that can't be read", response.StatusCode, http.StatusText(response.StatusCode))
	}
	return response, nil
}

// checkProxy refuses the answer of a proxy that doesn't let a download through, without the text that it
// answers with (http.Transport.OnProxyConnectResponse).
func checkProxy(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return refused("the proxy answers %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	return nil
}

// sent are parts of an error's text that a server or a proxy may have sent: what is quoted, and URLs' user
// names, passwords and queries.
var sent = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[^\s/@]+@|[?#]\S+`)

// shown is an error with a text that may be shown.
type shown struct {
	text string
	err  error
}

func (s *shown) Error() string { return s.text }

// Unwrap returns the error that it stands for, whose text isn't to be shown.
func (s *shown) Unwrap() error { return s.err }

// discreetly is an error of net/http with a text that shows no credentials, and no URL.
func discreetly(err error) error {
	var own *refusal
	if errors.As(err, &own) {
		return own
	}
	var ofURL *url.Error
	for errors.As(err, &ofURL) {
		err = ofURL.Err
	}
	var ofHeader textproto.ProtocolError // which quotes nothing
	if errors.As(err, &ofHeader) {
		return &shown{text: "the answer has a header that can't be read", err: err}
	}
	var ofNetwork *net.OpError
	if errors.As(err, &ofNetwork) && ofNetwork.Source != nil {
		// Its text has the number of a port in it, which is another one each time.
		err = fmt.Errorf("%s: %w", ofNetwork.Op, ofNetwork.Err)
	}
	return &shown{text: sent.ReplaceAllString(err.Error(), "..."), err: err}
}
