// Package release defines releases of Cluster API providers: the release file that describes how a source tree becomes
// one (Config), and the set of files of one provider at one version (Release), built from a tree, read from a folder or
// read back from a repository.
package release
