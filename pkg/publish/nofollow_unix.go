//go:build unix

package publish

import "syscall"

// noFollow keeps a lock file from being a link to somebody's file.
const noFollow = syscall.O_NOFOLLOW
