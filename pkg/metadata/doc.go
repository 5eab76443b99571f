// Package metadata reads, shows, edits and checks metadata.yaml, the file in which a provider declares the contract of
// each of its release series. An edit inserts lines into the original text: comments, order, indentation and line
// endings stay.
package metadata
