package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

const (
	// requestTries is how often a request is sent at most.
	requestTries = 7
	// stepTries is how often a step that takes several requests, such as an upload, is tried.
	stepTries = 8
	// firstPause is the longest pause before the second try; the pauses double up to longestPause.
	firstPause, longestPause = time.Second, 30 * time.Second
	// longestWait is how long a server may ask to wait; what takes longer is an error that says so.
	longestWait = 15 * time.Minute
	// limitPause is how long to wait where a server limits requests and does not say how long.
	// Source: GitHub docs, "Best practices for using the REST API", "Handle rate limit errors appropriately".
	limitPause = time.Minute
)

// The headers by which a server limits requests.
const (
	remainingHeader = "X-Ratelimit-Remaining"
	resetHeader     = "X-Ratelimit-Reset"
	// limitedHeader is this package's own mark on an answer that is a limit.
	limitedHeader = "X-Clusterctl-Release-Limited"
)

// retrying returns a client that tries again what is known to have had no effect, or has the same
// effect however often it is done. Anything else is for the caller to look into, see Client.Again.
func (c *Client) retrying(inner *http.Client) *retryablehttp.Client {
	r := retryablehttp.NewClient()
	r.HTTPClient = inner
	r.Logger = nil
	r.RetryMax = requestTries - 1
	r.ErrorHandler = func(resp *http.Response, err error, tries int) (*http.Response, error) {
		if tries >= requestTries {
			c.gaveUp.Store(true)
		}
		if err != nil && resp != nil {
			_ = resp.Body.Close() // it is in memory
			return nil, err
		}
		return resp, err
	}
	r.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err == nil && resp.StatusCode < http.StatusInternalServerError {
			c.gaveUp.Store(false)
		}
		return ctx.Value(onceKey{}) == nil && mayRetry(resp, err), nil
	}
	r.Backoff = func(_, _ time.Duration, attempt int, resp *http.Response) time.Duration {
		d, why := Pause(attempt), "no answer from the server"
		if resp != nil {
			why = fmt.Sprintf("%s answers %s", resp.Request.URL.Host, resp.Status)
			if asked, ok := askedWait(resp, attempt); ok {
				d = asked + d // spread those who were all told the same moment
				why = resp.Request.URL.Host + " limits requests"
			}
		}
		c.tell(why, d)
		if c.network.Sleep != nil {
			_ = c.network.Sleep(context.Background(), d) // the request looks at its own context next
			return 0
		}
		return d
	}
	return r
}

// tell reports a wait.
func (c *Client) tell(why string, d time.Duration) {
	if c.report != nil {
		c.report(fmt.Sprintf("%s; trying again in %s", why, max(d.Round(time.Second), time.Second)))
	}
}

// Again waits before a step of several requests, such as an upload, is tried once more, and reports it
// with the error of the try before. The error is that one where the step was tried often enough, or a
// request of this run was given up on: nothing is tried again above it then. Try counts from 1.
func (c *Client) Again(ctx context.Context, try int, last error) error {
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), last)
	}
	if c.gaveUp.Load() {
		return last
	}
	if try >= stepTries {
		return fmt.Errorf("%w; given up after %d tries: run this again", last, try)
	}
	d := Pause(try - 1)
	c.tell(fmt.Sprint(last), d)
	return c.network.Wait(ctx, d)
}

// Await waits before something is looked for once more that a server may be behind with. It returns
// false where it was looked for often enough. Try counts from 1.
func (c *Client) Await(ctx context.Context, try int, what string) (bool, error) {
	if try >= stepTries {
		return false, nil
	}
	d := Pause(try)
	c.tell("the server does not show "+what+" yet", d)
	return true, c.network.Wait(ctx, d)
}

// onceKey is the key of a context whose requests are sent once.
type onceKey struct{}

// Once returns a context for requests that are sent once and take at most that long, for those who
// look what is there before they try again.
func Once(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(ctx, onceKey{}, true), most)
}

// Pause returns how long to wait before the next try, with jitter.
func Pause(attempt int) time.Duration {
	most := min(firstPause<<min(attempt, 10), longestPause)
	return most/2 + rand.N(most/2) //nolint:gosec // it spreads requests; nobody gains by guessing it
}

// mayRetry says whether a request may be sent again.
func mayRetry(resp *http.Response, err error) bool {
	if err != nil {
		var large *tooLargeError
		if errors.As(err, &large) {
			return false
		}
		var request *url.Error
		if errors.As(err, &request) && !strings.EqualFold(request.Op, http.MethodPost) {
			return true
		}
		var dial *net.OpError
		return errors.As(err, &dial) && dial.Op == "dial" // it was never sent
	}
	if wait, ok := askedWait(resp, 0); ok {
		return wait <= longestWait
	}
	// An upstream failure may have had its effect; what only sets a state may be said again.
	if resp.Request == nil || resp.Request.Method == http.MethodPost {
		return false
	}
	return slices.Contains([]int{
		http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}, resp.StatusCode)
}

// isLimited says whether an answer says that there were too many requests. GitHub says so with 403
// as well as with 429.
// Source: GitHub docs, "Rate limits for the REST API", "Exceeding the rate limit"; GitLab docs,
// "Rate limits", "Response headers".
func isLimited(status int, header http.Header, body []byte) bool {
	switch status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusForbidden:
		return header.Get("Retry-After") != "" || header.Get(remainingHeader) == "0" ||
			bytes.Contains(bytes.ToLower(body), []byte("rate limit"))
	case http.StatusServiceUnavailable:
		return header.Get("Retry-After") != ""
	}
	return false
}

// askedWait returns how long a server that limits requests asks to wait.
func askedWait(resp *http.Response, attempt int) (time.Duration, bool) {
	if resp.Header.Get(limitedHeader) == "" {
		return 0, false
	}
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	after := resp.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(after); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, 1<<20)) * time.Second, true
	}
	if at, err := http.ParseTime(after); err == nil {
		return max(at.Sub(now), 0), true
	}
	if resp.Header.Get(remainingHeader) == "0" {
		if at, err := strconv.ParseInt(resp.Header.Get(resetHeader), 10, 64); err == nil {
			return max(time.Unix(at, 0).Sub(now), 0) + time.Second, true // the header has whole seconds
		}
	}
	return limitPause << min(attempt, 4), true
}
