//go:build unix

package gitrepo

import (
	"os"
	"syscall"
)

// lock locks an open file for this process without waiting. The kernel releases the lock when
// the process ends.
func lock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
