// Package move computes what `clusterctl move` does to the objects of a management cluster, of a dump, or
// of what a release's templates render to: which objects it reads, how they own each other, which it
// creates and in which order, which it deletes, which it leaves behind, and why.
//
// The rules are those of clusterctl v1.14's client/cluster/objectgraph.go and mover.go. Their graph is
// not exported, reads live clusters only, and walks all objects once for each object. This package
// implements the same rules in time linear in objects and references. It calls what Cluster API
// exports: names of cluster Secrets, labels and annotations, the types of Clusters and ClusterClasses
// and their conversion, conditions, and who is paused. A test compares it with clusterctl itself.
//
// Source: Cluster API book, clusterctl provider contract, "OwnerReferences chain" and "Move".
package move
