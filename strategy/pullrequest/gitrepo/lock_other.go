//go:build !unix

package gitrepo

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// lock fails: only the commands that read run on such a system, and they clone nothing.
func lock(*os.File) error {
	return fmt.Errorf("locks of files on %s: %w: run the hub on Linux", runtime.GOOS, errors.ErrUnsupported)
}
