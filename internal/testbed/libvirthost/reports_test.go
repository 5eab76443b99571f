package libvirthost

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// TestReceiveReport: a guest that got no answer in time posts its report again, which is not another start.
func TestReceiveReport(t *testing.T) {
	g := NewWithT(t)
	h := &Host{news: make(chan struct{})}
	for _, content := range []string{
		`{"SystemUUID": "one", "BootID": "first"}`, `{"SystemUUID": "one", "BootID": "first"}`,
		`{"SystemUUID": "one", "BootID": "second"}`, `{"SystemUUID": "two", "BootID": "third"}`,
	} {
		answer := httptest.NewRecorder()
		h.receiveReport(answer, httptest.NewRequest(http.MethodPost, "/report", strings.NewReader(content)))
		g.Expect(answer.Code).To(Equal(http.StatusOK))
	}
	reports, _ := h.Reports()
	g.Expect(reports).To(HaveExactElements(
		HaveField("BootID", "first"), HaveField("BootID", "second"), HaveField("BootID", "third")))
}
