package contract

import (
	"fmt"
	"strings"
)

// holds compares the field at a path of the kind with what it has to look like.
func (i *Implementation) holds(s shape, path ...string) Verdict {
	if i.CRD == nil {
		return Verdict{State: NotApplicable, Detail: "there is no such kind"}
	}
	n := i.root.at(path...)
	if !n.there() {
		reason := fmt.Sprintf("%s has no %s, %s", i.CRD.kind(), strings.Join(path, "."), s.name())
		return Verdict{State: Missing, Detail: n.name, Problems: []Problem{n.problem(Broken, reason)}}
	}
	v := verdictOf(s.compare(n))
	v.Detail = n.name
	return v
}

// fieldIs returns the rule about one field, which both contract versions have alike.
func fieldIs(s shape, path ...string) func(*Implementation) Verdict {
	return func(i *Implementation) Verdict { return i.holds(s, path...) }
}

// writtenLater returns the rule about a field of the spec that the provider's own controller fills
// in: no object would be made if the schema required it.
func writtenLater(s shape, path ...string) func(*Implementation) Verdict {
	return func(i *Implementation) Verdict {
		v := i.holds(s, path...)
		if v.State == NotApplicable || v.State == Missing {
			return v
		}
		if n := i.root.at(path...); n.required {
			p := n.problem(Broken, fmt.Sprintf("%s is required, and only the controller knows it: the API server refuses every %s that Cluster API makes", n.name, i.CRD.kind()))
			p.Fix = "make the field optional (in Go, `+optional` and `omitempty`)"
			v.State, v.Problems = Wrong, append(v.Problems, p)
		}
		return v
	}
}

// initialized returns the rule about the field that says that a resource is initialized: one below
// status.initialization, and another one of status under the v1beta1 contract.
func initialized(name, old string) func(*Implementation) Verdict {
	return func(i *Implementation) Verdict {
		if i.CRD == nil {
			return Verdict{State: NotApplicable, Detail: "there is no such kind"}
		}
		if i.old {
			v := i.holds(boolean, "status", old)
			for k := range v.Problems {
				v.Problems[k].Reason += ": Cluster API waits for it for ever"
				v.Problems[k].Fix = fmt.Sprintf("add status.%s as a boolean, which the v1beta1 contract has", old)
			}
			return v
		}
		v := i.holds(boolean, "status", "initialization", name)
		for k := range v.Problems {
			v.Problems[k].Reason += ": Cluster API waits for it for ever"
			if i.root.at("status", old).there() {
				v.Problems[k].Reason += fmt.Sprintf("; status.%s is the v1beta1 contract's, and the definition declares v1beta2", old)
			}
		}
		return v
	}
}

// condition is what Cluster API reads of a condition.
var condition = object(
	must("type", anyText), must("status", anyText),
	may("reason", anyText), may("message", anyText), may("lastTransitionTime", anyText), may("observedGeneration", integer),
)

// conditions is the rule about status.conditions.
var conditions = fieldIs(shape{kind: typeList, items: &condition}, "status", "conditions")

// terminalFailures is the rule about status.failureReason and status.failureMessage, which the
// v1beta2 contract has no longer.
func terminalFailures(i *Implementation) Verdict {
	if i.CRD == nil {
		return Verdict{State: NotApplicable, Detail: "there is no such kind"}
	}
	var problems []Problem
	var found []string
	for _, name := range []string{"failureReason", "failureMessage"} {
		n := i.root.at("status", name)
		if n.schema == nil {
			continue
		}
		found = append(found, n.name)
		problems = append(problems, anyText.compare(n)...)
		if !i.old {
			p := n.problem(Deprecated, fmt.Sprintf("%s is the v1beta1 contract's: under v1beta2 it stops nothing any more, and Cluster API will stop reading it", n.name))
			p.Fix = "surface terminal failures as a condition with a documented type and reason"
			problems = append(problems, p)
		}
	}
	switch {
	case len(found) > 0:
		v := verdictOf(problems)
		v.Detail = strings.Join(found, ", ")
		return v
	case i.old:
		return Verdict{State: Missing, Detail: "status.failureReason, status.failureMessage"}
	}
	return Verdict{State: NotApplicable, Detail: "conditions tell of terminal failures under v1beta2"}
}

// endpoint is the address of an API server.
var endpoint = object(must("host", text(512)), must("port", shape{kind: typeInteger, maximum: 65535}))
