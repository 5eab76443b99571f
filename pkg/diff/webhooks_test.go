package diff

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWebhooks checks that a new or removed webhook is described by the requests for which it is called, and a rule
// for another version by that version.
func TestWebhooks(t *testing.T) {
	const configuration = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: v}
webhooks: [%s]
`
	webhook := func(name, path, version, operations, more string) string {
		return fmt.Sprintf("{name: %s.io, clientConfig: {service: {name: w, namespace: n, path: /%s}}, rules: [{apiGroups: [g.io], apiVersions: [%s], operations: [%s], resources: [%ss]}]%s}",
			name, path, version, operations, name, more)
	}
	kept := webhook("k", "k", "v1", "CREATE", "")
	for _, tc := range []struct{ name, before, after, want string }{
		{"another version", webhook("a", "v1-a", "v1", "CREATE", "") + ", " + webhook("b", "v1-b", "v1", "UPDATE", ""), webhook("a", "v2-a", "v2", "CREATE", "") + ", " + webhook("b", "v2-b", "v2", "UPDATE", ""),
			"webhooks[a.io].rules[].apiVersions, webhooks[b.io].rules[].apiVersions: v2, was v1"},
		{"other operations", webhook("a", "a", "v1", "CREATE", ""), webhook("a", "a", "v1", "UPDATE", ""),
			`webhooks[a.io].rules: [{"apiGroups":["g.io"],"apiVersions":["v1"],"operations":["UPDATE"],"resources"…, was [{"apiGroups":["g.io"],"apiVersions":["v1"],"operations":["CREATE"],"resources"…`},
		{"a path alone", webhook("a", "v1-a", "v1", "CREATE", ""), webhook("a", "v2-a", "v1", "CREATE", ""), `webhooks[a.io].clientConfig.service.path: "/v2-a", was "/v1-a"`},
		{"added", kept, kept + ", " + webhook("a", "a", "v1", "CREATE, UPDATE", ", failurePolicy: Ignore"), "webhooks[a.io]: added, called for CREATE, UPDATE of as.g.io, failurePolicy Ignore"},
		{"added with the default policy", kept, kept + ", " + webhook("a", "a", "v1", "DELETE", ""), "webhooks[a.io]: added, called for DELETE of as.g.io, failurePolicy Fail"},
		{"removed", kept + ", " + webhook("a", "a", "v1", "CREATE", ""), kept, "webhooks[a.io]: removed, was called for CREATE of as.g.io"},
		{"added without rules", kept, kept + ", {name: a.io}", `webhooks[a.io]: added: {"name":"a.io"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := differenceOf(t, map[string][2]string{components: {fmt.Sprintf(configuration, tc.before), fmt.Sprintf(configuration, tc.after)}})
			want := []string{"For operators: Webhooks", "ValidatingWebhookConfiguration v: " + tc.want}
			if diff := cmp.Diff(want, linesOf(t, d)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
