package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/githubserver"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	// latency is the latency of each request to the server.
	latency = 50 * time.Millisecond
	// publishedFiles is the number of files of a release.
	publishedFiles = 40
	// atOnce is the number of concurrent uploads and downloads of pkg/publish.
	atOnce = 8
)

// slowly is a server that answers each request after the latency, and counts requests that may be concurrent and those
// that are sequential.
type slowly struct {
	handler http.Handler

	mu                         sync.Mutex
	uploads, downloads, others int
}

// ServeHTTP implements http.Handler.
func (s *slowly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	switch {
	case strings.HasPrefix(r.URL.Path, "/api/uploads/"):
		s.uploads++
	case strings.HasPrefix(r.URL.Path, "/storage/"), strings.Contains(r.URL.Path, "/releases/assets/"):
		s.downloads++
	default:
		s.others++
	}
	s.mu.Unlock()
	time.Sleep(latency)
	s.handler.ServeHTTP(w, r)
}

// least returns the minimum time of the requests: sequential ones, and concurrent uploads and downloads.
func (s *slowly) least() time.Duration {
	rounds := func(n int) int { return (n + atOnce - 1) / atOnce }
	return time.Duration(s.others+rounds(s.uploads)+rounds(s.downloads)) * latency
}

// benchPublish measures publishing a release of many files to a GitHub Enterprise server with latency, including
// reading back, next to the minimum that latency and concurrency allow.
func benchPublish(ctx context.Context, work string, runs int) error {
	token := filepath.Join(work, "token")
	if err := os.WriteFile(token, []byte("bench"), 0o600); err != nil {
		return err
	}
	provider := release.Provider{Name: "bench", Type: release.ProviderTypes()[3]}
	files := []release.File{
		{Name: provider.ComponentsFile(), Data: []byte(strings.Repeat("# components\n", 10000))},
		{Name: release.MetadataFile, Data: []byte("apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries: [{major: 0, minor: 1, contract: v1beta2}]\n")},
	}
	for len(files) < publishedFiles {
		files = append(files, release.File{Name: fmt.Sprintf("cluster-template-%d.yaml", len(files)), Data: []byte(strings.Repeat("# template\n", 1000))})
	}
	r, err := release.New(provider, "v0.1.0", files)
	if err != nil {
		return err
	}
	var took, least, ratios []float64
	for i := range runs + 1 {
		wall, server, err := publishSlowly(ctx, r, token)
		if err != nil {
			return fmt.Errorf("publishing: %w", err)
		}
		if i == 0 {
			continue // it warms the caches
		}
		took = append(took, wall.Seconds())
		least = append(least, server.least().Seconds())
		ratios = append(ratios, wall.Seconds()/server.least().Seconds())
		if i == runs {
			fmt.Printf("publishing %d files to a server at %s a request: %d uploads and %d downloads, %d at a time, and %d other requests (%d runs; medians)\n",
				publishedFiles, latency, server.uploads, server.downloads, atOnce, server.others, runs)
		}
	}
	itself := func(f float64) float64 { return f }
	fmt.Printf("  %-48s %7.3f s\n", "publish, with read back", median(took, itself))
	fmt.Printf("  %-48s %7.3f s\n", "what latency and concurrency allow", median(least, itself))
	fmt.Printf("  %-48s %7.2f              aim: at most 1.2\n\n", "ratio", median(ratios, itself))
	return nil
}

// publishSlowly publishes once, to a new server.
func publishSlowly(ctx context.Context, r *release.Release, token string) (time.Duration, *slowly, error) {
	github := githubserver.New("acme", "bench", time.Now)
	github.Token = "bench"
	slow := &slowly{handler: github}
	server := httptest.NewServer(slow)
	defer server.Close()
	github.Base = server.URL
	for name, value := range map[string]string{"GITHUB_SERVER_URL": server.URL, "GITHUB_API_URL": server.URL + "/api/v3"} {
		if err := os.Setenv(name, value); err != nil {
			return 0, nil, err
		}
		defer func() { _ = os.Unsetenv(name) }() // a name that could be set can be unset
	}
	p, err := publish.Open(server.URL+"/acme/bench", publish.Options{TokenFile: token, Commit: strings.Repeat("a", 40)})
	if err != nil {
		return 0, nil, err
	}
	start := time.Now()
	_, err = p.Publish(ctx, []*release.Release{r})
	return time.Since(start), slow, err
}
