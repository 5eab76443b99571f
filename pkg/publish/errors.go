package publish

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// TargetError means that a text names no known kind of place.
type TargetError struct {
	// Text is the text that the user gave.
	Text string
	// Purpose is the purpose of the place, e.g. "publish to".
	Purpose string
	// Forms are the known places, in the form that users write.
	Forms []string
}

func (e *TargetError) Error() string {
	return fmt.Sprintf("%q isn't a place to %s: use %s", e.Text, e.Purpose, strings.Join(e.Forms, ", or "))
}

// ConflictError means that a version is already published with other bytes.
type ConflictError struct {
	Provider release.Provider
	Version  string
	// Place is the place where the version is published.
	Place string
	// Differences compare the published release (first) with the new one (second).
	Differences []release.Difference
	// Replaceable means that Options.Replace would allow it.
	Replaceable bool
	// Immutable means that the server does not allow to replace the release, even after it is deleted.
	Immutable bool
}

func (e *ConflictError) Error() string {
	lines := make([]string, 0, len(e.Differences))
	for _, d := range e.Differences {
		lines = append(lines, d.File+comparedWithNew[d.Kind])
	}
	advice := "a published version is never changed: publish a new version"
	switch {
	case e.Immutable:
		advice = "the release is immutable, and the server refuses its tag for ever, even once the release is deleted: publish a new version"
	case e.Replaceable:
		advice = "publish a new version, or replace this one (Options.Replace)"
	}
	return fmt.Sprintf("%s %s is published already in %s, with other bytes: %s; %s",
		e.Provider.Label(), e.Version, e.Place, strings.Join(lines, ", "), advice)
}

// comparedWithNew describes a difference between the published release (first) and the new one (second), and sinceBuild
// the change of a file since the build.
var (
	comparedWithNew = map[string]string{
		"missing": " is only in the published one", "extra": " is only in the new one", "differs": " differs",
	}
	sinceBuild = map[string]string{"missing": " was removed", "extra": " was added", "differs": " was changed"}
)

// LockedError means that another publisher has the lock of a repository.
type LockedError struct {
	// Place is the repository.
	Place string
	// Holder is the process with the lock; its fields are empty if it is unknown.
	Holder Holder
	// Waited is the time that this process waited for the lock.
	Waited time.Duration
}

// Holder is a process with a lock.
type Holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

func (h Holder) String() string {
	if h.PID == 0 {
		return "another publisher"
	}
	return fmt.Sprintf("process %d on %s, since %s", h.PID, h.Host, h.Since.Format(time.RFC3339))
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("%s is being written to by %s; waited %s: try again when it is done, or end it if it hangs",
		e.Place, e.Holder, e.Waited.Round(time.Second))
}

// ReadBackError means that clusterctl does not get the published bytes from a place.
type ReadBackError struct {
	Release *release.Release
	// File is the affected file; empty for the release as a whole.
	File string
	// Err is the error of clusterctl's client; nil if it read other bytes.
	Err error
}

func (e *ReadBackError) Error() string {
	what := e.Release.String()
	if e.File != "" {
		what += ": " + e.File
	}
	if e.Err == nil {
		return what + ": clusterctl reads other bytes for it: another program changes the place; check it and run this again"
	}
	return fmt.Sprintf("%s: clusterctl can't read it: %v", what, e.Err)
}

func (e *ReadBackError) Unwrap() error { return e.Err }

// joinErrors joins two errors in one line.
func joinErrors(err, second error) error {
	if err == nil || second == nil {
		return errors.Join(err, second)
	}
	return fmt.Errorf("%w; also: %w", err, second)
}

// diskAdvice tells users what to do about errors of the disk.
var diskAdvice = []struct {
	err    error
	advice string
}{
	{syscall.ENOSPC, "free some space, then run this again"},
	{syscall.EDQUOT, "free some space, then run this again"},
	{syscall.EROFS, "choose a folder that can be written to"},
	{fs.ErrPermission, "run this as a user who may write there, or choose another folder"},
	{syscall.ENOTDIR, "a part of the path is a file: choose another folder"},
	{syscall.EXDEV, "a folder can't be renamed across file systems, nor out of a layer of a container's image: choose another folder"},
	{errors.ErrUnsupported, "choose a folder on a file system that has locks and renames folders"},
	{syscall.ENOLCK, "choose a folder on a file system that has locks and renames folders"},
	{syscall.EIO, "the disk fails; see the system's log"},
}

// withAdvice adds advice for the user to an error of the disk.
func withAdvice(err error) error {
	for _, a := range diskAdvice {
		if errors.Is(err, a.err) {
			return fmt.Errorf("%w: %s", err, a.advice)
		}
	}
	return err
}
