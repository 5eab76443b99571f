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
	// old is the field under the v1beta1 contract, if it differs.
	old *fieldRule
	// fix is the advice, if it differs from the rule's.
	fix string
	// awaited means that Cluster API waits until the field is true.
	awaited bool
	// written means that the provider's controller writes a field of the spec: objects could not be created if the
	// schema required it.
	written bool
}

// judge compares the field of a kind with the field that Cluster API reads.
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
			p.Reason += ": Cluster API waits for it forever"
			if !i.old && i.root.at(f.old.path).there() {
				p.Reason += fmt.Sprintf("; %s is the field of the v1beta1 contract, but the CRD declares v1beta2", f.old.path)
			}
		}
	}
	if f.written && v.State != Missing && n.required {
		p := n.problem(Broken, fmt.Sprintf("%s is required, but only the controller knows its value: the API server refuses every %s that Cluster API creates", n.name, i.CRD.kind()))
		p.Fix = "make the field optional (in Go, `+optional` and `omitempty`)"
		v.State, v.Problems = Wrong, append(v.Problems, p)
	}
	return v
}

// judgeTerminalFailures judges status.failureReason and status.failureMessage, which the v1beta2 contract no longer
// has.
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
			p := n.problem(Deprecated, fmt.Sprintf("%s is a field of the v1beta1 contract: under v1beta2 it has no effect, and Cluster API will stop reading it", n.name))
			p.Fix = "report terminal failures as a condition with a documented type and reason"
			problems = append(problems, p)
		}
	}
	switch {
	case len(names) > 0:
		return Verdict{Detail: strings.Join(names, ", ")}.with(problems)
	case i.old:
		return Verdict{State: Missing, Detail: "status.failureReason, status.failureMessage"}
	}
	return Verdict{State: NotApplicable, Detail: "under v1beta2, conditions report terminal failures"}
}

// machineProviderID judges a field that the machine's controller writes. Cluster API creates InfraMachines only from
// templates, so a kind without one may require the field.
func machineProviderID(i *Implementation) Verdict {
	if i.isPoolMachine() {
		return Verdict{State: NotApplicable, Detail: "the pool's controller creates the machines of a pool with their provider IDs"}
	}
	return fieldRule{path: "spec.providerID", shape: text(512), written: i.Template != nil}.judge(i)
}

// poolInitialized judges the fields that report a provisioned pool. The contract requires the same field as for other
// resources, but the MachinePool controller still waits for status.ready.
func poolInitialized(i *Implementation) Verdict {
	v := provisioned.field.judge(i)
	if i.old {
		return v
	}
	ready := i.root.at("status.ready")
	switch {
	case v.State == Missing && ready.there():
		v.Problems[0].Weight = Deprecated
		v.Problems[0].Reason = i.CRD.kind() + " has status.ready without status.initialization.provisioned: the MachinePool controller still waits for status.ready, but the contract requires the other field"
	case v.State == Present && !ready.there():
		p := ready.problem(Lax, i.CRD.kind()+" has status.initialization.provisioned without status.ready: the MachinePool controller in this version of Cluster API still waits for status.ready")
		p.Fix = "add status.ready as a boolean, and set both"
		v.Problems = []Problem{p}
	}
	return v
}
