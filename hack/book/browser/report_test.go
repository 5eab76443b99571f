package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
)

// TestLargeReport checks that a report with more than 1,000 findings lays its page out once for each change of the
// filters. The log has the time that the page's thread needs for that.
func TestLargeReport(t *testing.T) {
	sample, err := os.ReadFile("../../../pkg/report/testdata/report.html")
	if err != nil {
		t.Fatal(err)
	}
	finding := regexp.MustCompile(`(?s)<article class="finding error".*?</article>\n`).FindString(string(sample))
	if !strings.Contains(finding, "there is no metadata.yaml") {
		t.Fatalf("the first finding in the report of pkg/report is %s", finding)
	}
	var many strings.Builder
	for i := range 1000 {
		many.WriteString(strings.ReplaceAll(finding, "there is no metadata.yaml", fmt.Sprintf("there is no file number%d.", i)))
	}
	page := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(page, []byte(strings.Replace(string(sample), finding, finding+many.String(), 1)), 0o600); err != nil {
		t.Fatal(err)
	}

	w := open(t)
	if _, err := chromedp.Call(w.ctx, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}); err != nil {
		t.Fatal(err)
	}
	w.do(chromedp.Navigate(address(t, page)))
	const visible = `[...document.querySelectorAll(".finding")].filter((e) => e.checkVisibility()).length`
	w.until(visible + " > 1000")
	loaded := w.metrics()
	t.Logf("loaded in %.2f s of the page's thread", loaded["TaskDuration"])

	for _, change := range []struct{ what, script, is string }{
		{"a word of one finding", `search.value = "number517."; search.dispatchEvent(new Event("input"))`, visible + " === 1"},
		{"a word of all findings", `search.value = "number"; search.dispatchEvent(new Event("input"))`, visible + " === 1000"},
		{"no errors", `document.querySelector("[value=error]").click()`, visible + " === 0"},
	} {
		before := w.metrics()
		w.eval(`{ const search = document.getElementById("search"); ` + change.script + `; document.body.offsetHeight }`)
		after := w.metrics()
		t.Logf("%s: %.0f ms of the page's thread", change.what, 1000*(after["TaskDuration"]-before["TaskDuration"]))
		if layouts := after["LayoutCount"] - before["LayoutCount"]; layouts < 1 || layouts > 3 {
			t.Errorf("%s: the page was laid out %.0f times, want 1 to 3", change.what, layouts)
		}
		w.until(change.is)
	}
}

// metrics returns Chromium's metrics of the page.
func (w *window) metrics() map[string]float64 {
	w.t.Helper()
	result, err := chromedp.Call(w.ctx, performance.GetMetrics, cdp.Empty{})
	if err != nil {
		w.t.Fatal(err)
	}
	metrics := map[string]float64{}
	for _, metric := range result.Metrics {
		metrics[metric.Name] = metric.Value
	}
	return metrics
}
