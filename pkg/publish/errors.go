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

// TargetError says that a text names no kind of place that there is.
type TargetError struct {
	// Text is what was asked for.
	Text string
	// Purpose is what the place was wanted for, e.g. "publish to".
	Purpose string
	// Forms are the places that there are, as a user writes them.
	Forms []string
}

func (e *TargetError) Error() string {
	return fmt.Sprintf("%q isn't a place to %s: use %s", e.Text, e.Purpose, strings.Join(e.Forms, ", or "))
}

// ConflictError says that other bytes are published for a version already.
type ConflictError struct {
	Provider release.Provider
	Version  string
	// Place is where the version is published.
	Place string
	// Differences compare what is published (first) with what was to be published (second).
	Differences []release.Difference
	// Replaceable says that Options.Replace would allow it.
	Replaceable bool
	// Immutable says that the server lets nothing take the place of the release, not even once it is deleted.
	Immutable bool
}

func (e *ConflictError) Error() string {
	lines := make([]string, 0, len(e.Differences))
	for _, d := range e.Differences {
		lines = append(lines, describe(d))
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

// describe says how what is published (first) differs from what is to be published (second).
func describe(d release.Difference) string {
	switch d.Kind {
	case "missing":
		return d.File + " is only in the published one"
	case "extra":
		return d.File + " is only in the new one"
	}
	return d.File + " differs"
}

// LockedError says that another publisher holds the lock of a repository.
type LockedError struct {
	// Place is the repository.
	Place string
	// Holder is who has the lock; its fields are empty where that could not be found out.
	Holder Holder
	// Waited is how long the lock was waited for.
	Waited time.Duration
}

// Holder is a process that holds a lock.
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

// ReadBackError says that clusterctl does not get from a place what is published there.
type ReadBackError struct {
	Release *release.Release
	// File is the file concerned; empty where it is the release as a whole.
	File string
	// Err is what clusterctl's client reported; nil where it read other bytes.
	Err error
}

func (e *ReadBackError) Error() string {
	what := e.Release.String()
	if e.File != "" {
		what += ": " + e.File
	}
	if e.Err == nil {
		return what + ": clusterctl reads other bytes for it: something else changes the place; check it and run this again"
	}
	return fmt.Sprintf("%s: clusterctl can't read it: %v", what, e.Err)
}

func (e *ReadBackError) Unwrap() error { return e.Err }

// joinErrors returns one error of two, in one line.
func joinErrors(err, second error) error {
	if err == nil || second == nil {
		return errors.Join(err, second)
	}
	return fmt.Errorf("%w; also: %w", err, second)
}

// withAdvice adds to an error of the disk what the user can do about it.
func withAdvice(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: free some space, then run this again", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: choose a folder that can be written to", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: run this as a user who may write there, or choose another folder", err)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: a part of the path is a file: choose another folder", err)
	case errors.Is(err, syscall.EXDEV):
		return fmt.Errorf("%w: a folder can't be renamed across file systems, nor out of a layer of a container's image: choose another folder", err)
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, syscall.ENOLCK):
		return fmt.Errorf("%w: choose a folder on a file system that has locks and renames folders", err)
	case errors.Is(err, syscall.EIO):
		return fmt.Errorf("%w: the disk fails; see the system's log", err)
	}
	return err
}
