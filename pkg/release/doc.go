// Package release holds what a release of Cluster API providers is: the release file that
// says how a source tree becomes one (Config), and the set of files of one provider at one
// version (Release), whether it was built from a tree, read from a folder or read back from
// a repository.
package release
