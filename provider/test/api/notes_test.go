package api

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
)

// TestNotesOfEvents: the maximum length of a note in package notes is the one of the API server.
func TestNotesOfEvents(t *testing.T) {
	w := theWorld(t)
	g := NewWithT(t)
	create := func(name string, length int) error {
		_, err := w.clientset.EventsV1().Events(testNamespace).Create(t.Context(), &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: name}, EventTime: metav1.NowMicro(),
			ReportingController: "notes.test/test", ReportingInstance: "test", Type: corev1.EventTypeNormal, Reason: "Test", Action: "Test",
			Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: testNamespace, Name: "test"}, Note: strings.Repeat("x", length),
		}, metav1.CreateOptions{})
		return err
	}
	g.Expect(create("longest", notes.MaxBytes)).To(Succeed())
	g.Expect(create("too-long", notes.MaxBytes+1)).To(MatchError(apierrors.IsInvalid, "invalid"))
}
