package diff

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// followsRules reports whether the changed path of a webhook only follows a change of its rules: the path contains the
// version, and only the API server uses it.
func followsRules(c FieldChange, all []FieldChange) bool {
	webhook, ok := strings.CutSuffix(c.Path, ".clientConfig.service.path")
	return ok && slices.ContainsFunc(all, func(other FieldChange) bool { return other.Path == webhook+".rules" })
}

// webhookNote describes the change of a webhook configuration: the requests for which a webhook is called, not all of
// its fields; and for rules of other versions of the same kinds, only the versions.
func webhookNote(c FieldChange) (field string, text phrase) {
	switch {
	case strings.HasPrefix(c.Path, "webhooks[") && strings.HasSuffix(c.Path, "].rules"):
		before, after := rulesOf(c.Before), rulesOf(c.After)
		if old, now := versionsOf(before), versionsOf(after); len(old) > 0 && len(now) > 0 && reflect.DeepEqual(before, after) {
			return c.Path + "[].apiVersions", phrase{"%s, was %s", [][]string{now, old}}
		}
	case c.Before == "":
		if calls, policy := callsOf(c.After); len(calls) > 0 {
			return c.Path, phrase{"added, called for %s, failurePolicy %s", [][]string{calls, {policy}}}
		}
	case c.After == "":
		if calls, _ := callsOf(c.Before); len(calls) > 0 {
			return c.Path, phrase{"removed, was called for %s", [][]string{calls}}
		}
	}
	return c.Path, fromTo(c.Before, c.After)
}

// rulesOf reads the rules of a webhook; none if the text is something else.
func rulesOf(text string) []admissionv1.RuleWithOperations {
	var rules []admissionv1.RuleWithOperations
	if err := json.Unmarshal([]byte(text), &rules); err != nil {
		return nil
	}
	return rules
}

// versionsOf returns the versions in rules, and removes them from the rules.
func versionsOf(rules []admissionv1.RuleWithOperations) []string {
	var versions []string
	for i := range rules {
		versions = append(versions, rules[i].APIVersions...)
		rules[i].APIVersions = nil
	}
	slices.Sort(versions)
	return slices.Compact(versions)
}

// callsOf returns the requests for which a webhook is called, rule by rule, and its failurePolicy; none if the text
// isn't a webhook.
func callsOf(text string) (calls []string, policy string) {
	var webhook admissionv1.ValidatingWebhook
	if err := json.Unmarshal([]byte(text), &webhook); err != nil {
		return nil, ""
	}
	for _, rule := range webhook.Rules {
		var operations, resources []string
		for _, o := range rule.Operations {
			operations = append(operations, string(o))
		}
		for _, r := range rule.Resources {
			for _, group := range rule.APIGroups {
				resources = append(resources, strings.TrimSuffix(r+"."+group, "."))
			}
		}
		calls = append(calls, strings.Join(operations, ", ")+" of "+strings.Join(resources, ", "))
	}
	policy = string(admissionv1.Fail) // the API server's default
	if webhook.FailurePolicy != nil {
		policy = string(*webhook.FailurePolicy)
	}
	return calls, policy
}
