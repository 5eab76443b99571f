// Package move tells what `clusterctl move` would do to the objects of a management cluster, of a
// dump of one, or of what a release's templates become: which objects it reads, how they own each
// other, which it would create and in which order, which it would delete, and which it would leave
// behind; and why.
//
// The rules are those of clusterctl v1.14's client/cluster/objectgraph.go and mover.go. Their graph is
// not exported, reads a live cluster only, and walks all objects once for each object, so this is a
// twin of it, in time linear in objects and references. What Cluster API exports is called: names of
// cluster Secrets, labels and annotations, the types of Clusters and ClusterClasses and their
// conversion, conditions, and who is paused. A test holds the twin against the real one.
//
// Source: Cluster API book, clusterctl provider contract, "OwnerReferences chain" and "Move".
package move
