package libvirthost

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/guest/report"
)

// listenForReports receives the reports of the host's guests.
func (h *Host) listenForReports(ctx context.Context) error {
	listener, err := h.Namespace.Listen(ctx, net.JoinHostPort(h.Gateway().String(), report.Port))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+report.Path, h.receiveReport)
	h.reports = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = h.reports.Serve(listener) }()
	return nil
}

// receiveReport adds a report, once for each start of a guest.
func (h *Host) receiveReport(_ http.ResponseWriter, request *http.Request) {
	var got report.Report
	if err := json.NewDecoder(request.Body).Decode(&got); err != nil {
		panic(http.ErrAbortHandler)
	}
	got.From, _, _ = net.SplitHostPort(request.RemoteAddr)
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if slices.ContainsFunc(h.reached, func(r report.Report) bool { return r.BootID == got.BootID }) {
		return
	}
	h.reached = append(h.reached, got)
	close(h.news)
	h.news = make(chan struct{})
}

// Reports returns the reports of the host's guests, the oldest first, and a channel that is closed when there are more.
func (h *Host) Reports() ([]report.Report, <-chan struct{}) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return append([]report.Report(nil), h.reached...), h.news
}
