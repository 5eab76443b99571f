package pods

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/authority"
)

// serveLogs serves the kubelet's part of `kubectl logs`, on a port of the node that it returns. Clients need a
// certificate of the runner's authority.
func (r *Runner) serveLogs(ctx context.Context) (port int32, err error) {
	address := r.Network.Gateway().String()
	certPEM, keyPEM, err := r.CA.Issue(authority.Request{CommonName: "system:node:" + r.Node, Organizations: []string{"system:nodes"}, Names: []string{address}})
	if err != nil {
		return 0, err
	}
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return 0, err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(r.CA.PEM())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", r.containerLogs)
	mux.HandleFunc("/", func(response http.ResponseWriter, _ *http.Request) {
		http.Error(response, "the testbed's node serves logs only: exec, attach and port-forward aren't supported", http.StatusNotImplemented)
	})
	r.logs = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, MinVersion: tls.VersionTLS12,
	}}
	go func() { _ = r.logs.ServeTLS(listener, "", "") }()
	return int32(listener.Addr().(*net.TCPAddr).Port), nil
}

// containerLogs answers like a kubelet: status 400 is for errors, and its text is shown to users.
func (r *Runner) containerLogs(response http.ResponseWriter, request *http.Request) {
	response.Header().Set("Content-Type", "text/plain; charset=utf-8")
	key := types.NamespacedName{Namespace: request.PathValue("namespace"), Name: request.PathValue("pod")}
	options, err := parseLogOptions(request.URL.Query())
	var run *logRun
	if err == nil {
		run, err = r.logRun(key, request.PathValue("container"), options.previous)
	}
	if err != nil {
		response.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(response, err.Error())
		return
	}
	response.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(response).Flush
	_ = flush() // a following client waits for the status
	// The status is already sent: an error can only end the connection.
	if err := run.copyTo(request.Context(), response, flush, options); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// logOptions are the supported fields of corev1.PodLogOptions.
type logOptions struct {
	follow, previous bool
	// tail is the number of last lines, and limit the number of bytes. Negative values mean all.
	tail, limit int64
}

func parseLogOptions(query url.Values) (logOptions, error) {
	options := logOptions{tail: -1, limit: -1}
	for name := range query {
		var err error
		switch value := query.Get(name); name {
		case "follow":
			options.follow, err = strconv.ParseBool(value)
		case "previous":
			options.previous, err = strconv.ParseBool(value)
		case "tailLines":
			options.tail, err = strconv.ParseInt(value, 10, 64)
		case "limitBytes":
			options.limit, err = strconv.ParseInt(value, 10, 64)
		case "timestamps", "sinceSeconds", "sinceTime":
			err = errors.New("the testbed doesn't store the times of lines")
		case "stream":
			if value != "All" {
				err = errors.New("the testbed stores both streams in one file")
			}
		default:
			err = errors.New("the testbed doesn't support this option")
		}
		if err != nil {
			return options, fmt.Errorf("option %s of the logs: %w", name, err)
		}
	}
	return options, nil
}

// logRun is the output of one run of a container: a part of the file that all its runs share.
type logRun struct {
	file string
	from int64
	// to is the end of the part, which is valid after ended is closed.
	to    int64
	ended chan struct{}
}

// newLogRun returns the log of a run that is about to start.
func newLogRun(file string) (*logRun, error) {
	info, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		return &logRun{file: file, ended: make(chan struct{})}, nil
	}
	if err != nil {
		return nil, err
	}
	return &logRun{file: file, from: info.Size(), ended: make(chan struct{})}, nil
}

// end marks the end of the run. It is called before the next run starts.
func (l *logRun) end() {
	if info, err := os.Stat(l.file); err == nil {
		l.to = info.Size()
	}
	close(l.ended)
}

// logRun returns the log of the newest run of a container, or of the one before.
func (r *Runner) logRun(key types.NamespacedName, name string, previous bool) (*logRun, error) {
	c := r.container(key, name)
	if c == nil {
		return nil, fmt.Errorf("container %q in pod %q is waiting to start", name, key.Name)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	run := c.log
	// As with a kubelet, an ended container that waits for its restart is the newest run and the previous one.
	if previous && c.process != nil {
		run = c.previousLog
	}
	switch {
	case run != nil:
		return run, nil
	case previous:
		return nil, fmt.Errorf("previous terminated container %q in pod %q not found", name, key.Name)
	default:
		return nil, fmt.Errorf("container %q in pod %q is waiting to start", name, key.Name)
	}
}

// container returns the container of a pod, or nil. If two pods have the name, it prefers the one that isn't stopping.
func (r *Runner) container(key types.NamespacedName, name string) (result *container) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, running := range r.pods {
		if running.key != key {
			continue
		}
		running.mutex.Lock()
		if c := running.containers[name]; c != nil && (result == nil || !running.stopping) {
			result = c
		}
		running.mutex.Unlock()
	}
	return result
}

// followInterval is the interval of checking a log for more.
const followInterval = 100 * time.Millisecond

// copyTo copies the existing part, and with follow also the rest until the run or the context ends.
func (l *logRun) copyTo(ctx context.Context, to io.Writer, flush func() error, options logOptions) error {
	file, err := os.Open(l.file)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	at, left := l.from, options.limit
	for first := true; ; first = false {
		ended := false
		select {
		case <-l.ended:
			ended = true
		default:
		}
		end := l.to
		if !ended {
			info, err := file.Stat()
			if err != nil {
				return err
			}
			end = info.Size()
		}
		if first && options.tail >= 0 {
			if at, err = tailStart(io.NewSectionReader(file, at, end-at), options.tail, at); err != nil {
				return err
			}
		}
		size := end - at
		if left >= 0 {
			size = min(size, left)
			left -= size
		}
		if _, err := io.Copy(to, io.NewSectionReader(file, at, size)); err != nil {
			return err
		}
		at += size
		if ended || !options.follow || left == 0 {
			return nil
		}
		if err := flush(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.ended:
		case <-time.After(followInterval):
		}
	}
}

// tailStart returns the beginning of the last lines of a part that begins at an offset in its file.
func tailStart(part io.Reader, lines, begins int64) (int64, error) {
	content, err := io.ReadAll(part)
	if err != nil {
		return 0, err
	}
	if lines == 0 {
		return begins + int64(len(content)), nil
	}
	rest := bytes.TrimSuffix(content, []byte("\n"))
	for ; lines > 0; lines-- {
		newline := bytes.LastIndexByte(rest, '\n')
		if newline < 0 {
			return begins, nil
		}
		rest = rest[:newline]
	}
	return begins + int64(len(rest)) + 1, nil
}
