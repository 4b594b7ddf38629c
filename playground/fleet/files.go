package fleet

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	dirMode        = 0o700
	fileMode       = 0o600
	hubLogName     = "hub.log"
	kubeconfigEnds = ".kubeconfig"
)

// files are what the fleet writes for users: kubeconfigs and logs.
type files struct {
	dir    string
	hubLog *os.File
	names  []string
}

func newFiles(dir string, down *teardown) (*files, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	_, missing := os.Stat(dir)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("making the playground's directory: %w", err)
	}
	f := &files{dir: dir}
	down.add(func() error {
		errs := []error{}
		for _, name := range f.names {
			errs = append(errs, os.Remove(filepath.Join(dir, name)))
		}
		if missing != nil {
			errs = append(errs, os.Remove(dir))
		}
		return errors.Join(errs...)
	})
	f.hubLog, err = os.OpenFile(filepath.Join(dir, hubLogName), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, fileMode)
	if err != nil {
		return nil, fmt.Errorf("opening the hub's log: %w", err)
	}
	f.names = append(f.names, hubLogName)
	down.add(f.hubLog.Close)
	return f, nil
}

// kubeconfig writes one.
func (f *files) kubeconfig(name string, raw []byte) error { return f.write(name+kubeconfigEnds, raw) }

// track a file that is removed at the end, and return its path.
func (f *files) track(name string) string {
	f.names = append(f.names, name)
	return filepath.Join(f.dir, name)
}

// write a file.
func (f *files) write(name string, raw []byte) error {
	if err := os.WriteFile(f.track(name), raw, fileMode); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// path as a user types it.
func (f *files) path(name string) string { return typed(filepath.Join(f.dir, name)) }

// typed is a path relative to the working directory where that is shorter.
func typed(path string) string {
	if here, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(here, path); err == nil && len(short) < len(path) {
			return short
		}
	}
	return path
}

// logTail is the end of the hub's log.
func (f *files) logTail(lines int) []string {
	file, err := os.Open(filepath.Join(f.dir, hubLogName))
	if err != nil {
		return nil
	}
	defer file.Close()
	var tail []string
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		tail = append(tail, scanner.Text())
		if len(tail) > lines {
			tail = tail[1:]
		}
	}
	return tail
}
