package soak

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiFaults fails requests of the provider's manager to the API server, each kind with a chance in percent.
type apiFaults struct {
	// conflict answers writes with a conflict, fail loses requests, and lost loses answers.
	conflict, fail, lost atomic.Int64
}

func (f *apiFaults) set(conflict, fail, lost int) {
	f.conflict.Store(int64(conflict))
	f.fail.Store(int64(fail))
	f.lost.Store(int64(lost))
}

var errTrouble = errors.New("the connection was lost")

type faulty struct {
	*apiFaults
	next http.RoundTripper
}

func (f *apiFaults) wrap(next http.RoundTripper) http.RoundTripper { return faulty{f, next} }

func happens(percent *atomic.Int64) bool { return rand.Int64N(100) < percent.Load() }

// RoundTrip implements http.RoundTripper.
func (f faulty) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Query().Get("watch") != "" {
		return f.next.RoundTrip(request)
	}
	if happens(&f.fail) {
		return nil, errTrouble
	}
	if request.Method != http.MethodGet && happens(&f.conflict) {
		return conflict(request)
	}
	response, err := f.next.RoundTrip(request)
	if err == nil && happens(&f.lost) {
		_ = response.Body.Close()
		return nil, errTrouble
	}
	return response, err
}

func conflict(request *http.Request) (*http.Response, error) {
	status := apierrors.NewConflict(schema.GroupResource{Resource: "anything"}, "it", errors.New("it was changed")).Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	var body bytes.Buffer
	scheme := runtime.NewScheme()
	if err := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{}).Encode(&status, &body); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusConflict, Status: "409 Conflict", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(&body), ContentLength: int64(body.Len())}, nil
}

// behaviour is the behaviour of the image server.
type behaviour string

const (
	served  behaviour = "served"
	refused behaviour = "refused"
	cutOff  behaviour = "cut off"
	slow    behaviour = "slow"
	spoiled behaviour = "spoiled"
	missing behaviour = "missing"
	silent  behaviour = "silent"
	tooLong behaviour = "too long"
)

var behaviours = []behaviour{served, refused, cutOff, slow, spoiled, missing, silent, tooLong}

// imageServer serves one image.
type imageServer struct {
	URL, checksum string
	image         []byte

	lock sync.Mutex
	now  behaviour
}

func newImageServer(t *testing.T) *imageServer {
	t.Helper()
	header := make([]byte, 104)
	copy(header, "QFI\xfb")
	binary.BigEndian.PutUint32(header[4:], 3)
	binary.BigEndian.PutUint64(header[24:], 1<<30)
	s := &imageServer{image: append(header, bytes.Repeat([]byte("image"), 10000)...), now: served}
	sum := sha256.Sum256(s.image)
	s.checksum = "sha256:" + hex.EncodeToString(sum[:])
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	s.URL = server.URL + "/image.qcow2"
	return s
}

func (s *imageServer) behave(now behaviour) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.now = now
}

// ServeHTTP implements http.Handler.
func (s *imageServer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	s.lock.Lock()
	now := s.now
	s.lock.Unlock()
	content := s.image
	if now == tooLong {
		content = append(bytes.Clone(content), "and more"...)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	switch now {
	case served, tooLong:
	case missing:
		http.NotFound(w, request)
		return
	case silent:
		_, _ = w.Write(content[:len(content)/2])
		w.(http.Flusher).Flush() //nolint:forcetypeassert // a writer of net/http
		<-request.Context().Done()
		return
	case refused:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case cutOff:
		_, _ = w.Write(content[:len(content)/2])
		panic(http.ErrAbortHandler)
	case slow:
		_, _ = w.Write(content[:len(content)/2])
		time.Sleep(time.Second)
		content = content[len(content)/2:]
	case spoiled:
		content = bytes.Clone(content)
		content[len(content)-1]++
	}
	_, _ = w.Write(content)
}
