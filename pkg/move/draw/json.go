package draw

import (
	"io"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

// jsonGraph is the graph as JSON; its schema is docs/graph.schema.json. Objects are never collapsed.
type jsonGraph struct {
	// What the graph was made of.
	Source string `json:"source"`

	// The namespace that is moved; "" is all.
	Namespace string `json:"namespace"`

	// Whether something could not be read: the problems say what.
	Incomplete bool `json:"incomplete"`

	// What could not be read.
	Problems []move.Problem `json:"problems,omitempty"`

	// Assumptions about facts that the source does not contain.
	Assumptions []string `json:"assumptions,omitempty"`

	// The objects, and those that are only named as owners.
	Objects []jsonObject `json:"objects"`
}

type jsonObject struct {
	// The object.
	Object manifest.Object `json:"object"`
	// What a move does with it; absent is an owner that was not read.
	Fate move.Fate `json:"fate" jsonschema:"enum=moved,enum=copied,enum=left-behind,enum=apart,enum=absent"`
	// Why is the reason for the fate.
	Why string `json:"why"`
	// Step is which group of the move creates it, from 1.
	Step int `json:"step,omitempty"`
	// Cycle says that the object is in a cycle of owners.
	Cycle bool `json:"cycle,omitempty"`
	// Stops say why the move would not start because of it.
	Stops []string `json:"stops,omitempty"`
	// The objects that own it.
	Owners []jsonOwner `json:"owners"`
}

type jsonOwner struct {
	// The owner.
	Object manifest.Object `json:"object"`
	// Soft means that clusterctl links the two without an owner reference.
	Soft bool `json:"soft,omitempty"`
}

func writeJSON(p *Picture, w io.Writer) error {
	out := jsonGraph{
		Source: p.Plan.Source, Namespace: p.Plan.Namespace, Incomplete: p.Plan.Incomplete,
		Problems: p.Plan.Problems, Assumptions: p.Plan.Assumptions, Objects: make([]jsonObject, 0, len(p.Members)),
	}
	for i := range p.Members {
		m := &p.Members[i]
		o := jsonObject{Object: m.Object, Fate: m.Fate, Why: m.Why, Step: m.Step, Cycle: p.rings.in[i], Stops: m.Stops, Owners: make([]jsonOwner, 0, len(m.Owners))}
		for _, owner := range m.Owners {
			o.Owners = append(o.Owners, jsonOwner{Object: p.Members[owner.At].Object, Soft: owner.Soft})
		}
		out.Objects = append(out.Objects, o)
	}
	return format.JSON(out, w)
}
