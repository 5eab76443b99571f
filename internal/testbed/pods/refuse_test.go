package pods

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// TestRefuse checks that a pod with an unsupported feature is refused with a message.
func TestRefuse(t *testing.T) {
	yes, text := true, "other"
	tests := map[string]struct {
		change func(*corev1.PodSpec)
		want   string
	}{
		"nothing special":  {func(*corev1.PodSpec) {}, ""},
		"init container":   {func(s *corev1.PodSpec) { s.InitContainers = make([]corev1.Container, 1) }, "init containers"},
		"host's network":   {func(s *corev1.PodSpec) { s.HostNetwork = true }, "namespaces of the host"},
		"host's processes": {func(s *corev1.PodSpec) { s.HostPID = true }, "namespaces of the host"},
		"restart policy":   {func(s *corev1.PodSpec) { s.RestartPolicy = corev1.RestartPolicyNever }, "restart policy"},
		"readiness gate":   {func(s *corev1.PodSpec) { s.ReadinessGates = make([]corev1.PodReadinessGate, 1) }, "readiness gates"},
		"host name":        {func(s *corev1.PodSpec) { s.Hostname = text }, "host names"},
		"shared processes": {func(s *corev1.PodSpec) { s.ShareProcessNamespace = &yes }, "shared process namespace"},
		"runtime class":    {func(s *corev1.PodSpec) { s.RuntimeClassName = &text }, "runtime classes"},
		"hook":             {func(s *corev1.PodSpec) { s.Containers[0].Lifecycle = &corev1.Lifecycle{} }, "remove those of manager"},
		"block device":     {func(s *corev1.PodSpec) { s.Containers[0].VolumeDevices = make([]corev1.VolumeDevice, 1) }, "remove those of manager"},
		"privileged":       {func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes} }, "change manager"},
		"merely restricted": {func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: &yes}
		}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			object := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "manager"}}}}
			test.change(&object.Spec)
			err := refuse(object)
			if test.want == "" {
				g.Expect(err).ToNot(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(And(HavePrefix("CreateContainerConfigError: the testbed's pods have no "), ContainSubstring(test.want))))
		})
	}
}
