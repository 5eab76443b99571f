// Package publish puts releases where clusterctl reads them, and reads them back from there.
//
// A Publisher is one place, and each kind of place is one line in the list targets (publish.go). A kind of
// server is a store.Store in a folder of its own: server.go publishes to it, plan.go compares, and
// server_read.go reads. What is put into a folder becomes visible a whole version at a time: it is staged
// in the same file system, synced and renamed (folder.go), and every call that changes the disk is in
// disk.go.
package publish
