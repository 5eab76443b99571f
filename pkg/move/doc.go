// Package move computes what `clusterctl move` does to the objects of a management cluster, of a dump, or of a
// release's rendered templates: which objects it reads, how they own each other, which it creates and in which order,
// which it deletes, which it leaves behind, and why.
//
// The rules are those of clusterctl v1.14's client/cluster/objectgraph.go and mover.go. Their graph is not exported,
// reads only live clusters, and visits all objects once for each object. This package implements the same rules in time
// linear in objects and references. It uses the exported code of Cluster API: names of cluster Secrets, labels and
// annotations, the types of Clusters and ClusterClasses and their conversion, conditions, and the paused state. A test
// compares it with clusterctl.
//
// Source: Cluster API book, clusterctl provider contract, "OwnerReferences chain" and "Move".
package move
