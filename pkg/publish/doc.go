// Package publish puts releases where clusterctl reads them, and reads them back from there.
//
// A Publisher is one place. Each kind of place is one file of this package and one line in the
// list targets (publish.go). What is put into a folder becomes visible a whole version at a time:
// it is staged beside its place, synced and renamed (folder.go), and every call that changes the
// disk is in disk.go.
package publish
