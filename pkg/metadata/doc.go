// Package metadata reads, shows, edits and checks metadata.yaml, the file in which a provider
// tells clusterctl the contract of each of its release series. An edit splices lines into the
// text that was read: comments, order, indentation and line endings stay as their author left them.
package metadata
