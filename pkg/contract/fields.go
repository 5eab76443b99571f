package contract

import (
	"cmp"
	"fmt"
	"strings"
)

// fieldRule is a field that Cluster API reads or writes.
type fieldRule struct {
	path  string
	shape shape
	// old is the field under the v1beta1 contract, where it is another one.
	old *fieldRule
	// fix says what to do, where it is not the rule's own advice.
	fix string
	// awaited says that Cluster API waits until the field is true.
	awaited bool
	// written says that the provider's own controller writes a field of the spec: no object could be
	// created if the schema required it.
	written bool
}

// judge compares the field of a kind with what Cluster API reads there.
func (f fieldRule) judge(i *Implementation) Verdict {
	want := f
	if i.old && f.old != nil {
		want = *f.old
	}
	n := i.root.at(want.path)
	v := Verdict{State: Missing, Problems: []Problem{n.problem(Broken, fmt.Sprintf("%s has no %s, %s", i.CRD.kind(), n.name, want.shape.name()))}}
	if n.there() {
		v = verdictOf(want.shape.compare(n))
	}
	v.Detail = n.name
	for k := range v.Problems {
		p := &v.Problems[k]
		p.Fix = cmp.Or(want.fix, p.Fix)
		if f.awaited {
			p.Reason += ": Cluster API waits for it for ever"
			if !i.old && i.root.at(f.old.path).there() {
				p.Reason += fmt.Sprintf("; %s is the v1beta1 contract's, and the definition declares v1beta2", f.old.path)
			}
		}
	}
	if f.written && v.State != Missing && n.required {
		p := n.problem(Broken, fmt.Sprintf("%s is required, and only the controller knows it: the API server refuses every %s that Cluster API makes", n.name, i.CRD.kind()))
		p.Fix = "make the field optional (in Go, `+optional` and `omitempty`)"
		v.State, v.Problems = Wrong, append(v.Problems, p)
	}
	return v
}

// with judges an optional field of a kind and, where the kind has it, what has to come with it.
func (f fieldRule) with(i *Implementation, more func() []Problem) Verdict {
	v := f.judge(i)
	if v.State == Missing {
		return v
	}
	all := verdictOf(append(v.Problems, more()...))
	all.Detail = v.Detail
	return all
}

// judgeTerminalFailures is about status.failureReason and status.failureMessage, which the v1beta2
// contract has no longer.
func judgeTerminalFailures(i *Implementation) Verdict {
	var problems []Problem
	var names []string
	for _, path := range []string{"status.failureReason", "status.failureMessage"} {
		n := i.root.at(path)
		if n.schema == nil {
			continue
		}
		names = append(names, n.name)
		problems = append(problems, anyText.compare(n)...)
		if !i.old {
			p := n.problem(Deprecated, fmt.Sprintf("%s is the v1beta1 contract's: under v1beta2 it stops nothing any more, and Cluster API will stop reading it", n.name))
			p.Fix = "surface terminal failures as a condition with a documented type and reason"
			problems = append(problems, p)
		}
	}
	switch {
	case len(names) > 0:
		v := verdictOf(problems)
		v.Detail = strings.Join(names, ", ")
		return v
	case i.old:
		return Verdict{State: Missing, Detail: "status.failureReason, status.failureMessage"}
	}
	return Verdict{State: NotApplicable, Detail: "conditions tell of terminal failures under v1beta2"}
}

// machineProviderID is about a field that the machine's controller writes. Cluster API makes
// InfraMachines from templates only: a kind that has none may require the field.
func machineProviderID(i *Implementation) Verdict {
	if i.isPoolMachine() {
		return Verdict{State: NotApplicable, Detail: "the machines of a pool are made by the pool's controller, with their provider IDs"}
	}
	return fieldRule{path: "spec.providerID", shape: text(512), written: i.Template != nil}.judge(i)
}

// poolInitialized is the rule about a pool that says that it is provisioned. The page asks for the same
// field as those of other resources, but the controller of MachinePools still waits for status.ready.
func poolInitialized(i *Implementation) Verdict {
	v := provisioned.field.judge(i)
	if i.old {
		return v
	}
	ready := i.root.at("status.ready")
	switch {
	case v.State == Missing && ready.there():
		v.Problems[0].Weight = Deprecated
		v.Problems[0].Reason = i.CRD.kind() + " has status.ready and no status.initialization.provisioned: the controller of MachinePools still waits for status.ready, and the contract asks for the other field"
	case v.State == Present && !ready.there():
		p := ready.problem(Lax, i.CRD.kind()+" has no status.ready in addition to status.initialization.provisioned: the controller of MachinePools in this version of Cluster API still waits for it")
		p.Fix = "add status.ready as a boolean, and set both"
		v.Problems = []Problem{p}
	}
	return v
}
