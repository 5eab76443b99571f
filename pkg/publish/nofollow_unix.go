//go:build unix

package publish

import "syscall"

// noFollow prevents that a lock file is a link to another file.
const noFollow = syscall.O_NOFOLLOW
