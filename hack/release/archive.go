package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// sticky is the bit of a directory in which only the owner of a file may delete it.
const sticky = 0o1000

// entry is one file or directory of an archive. Its owner is root.
type entry struct {
	// name is the path with slashes, without one at the beginning. A directory ends with one.
	name string
	// mode has the permissions, as in a tar header.
	mode int64
	// content is that of the file. If path is set, the file at that path is the content.
	content []byte
	path    string
}

func (e entry) open() (io.ReadCloser, int64, error) {
	if e.path == "" {
		return io.NopCloser(strings.NewReader(string(e.content))), int64(len(e.content)), nil
	}
	file, err := os.Open(e.path)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, err
	}
	return file, info.Size(), nil
}

// writeTar writes entries in their order, with one time and nothing of this machine.
func writeTar(out io.Writer, at time.Time, entries []entry) error {
	w := tar.NewWriter(out)
	for _, e := range entries {
		header := &tar.Header{Format: tar.FormatUSTAR, Name: e.name, Mode: e.mode, ModTime: at}
		if strings.HasSuffix(e.name, "/") {
			header.Typeflag = tar.TypeDir
			if err := w.WriteHeader(header); err != nil {
				return err
			}
			continue
		}
		header.Typeflag = tar.TypeReg
		content, size, err := e.open()
		if err != nil {
			return err
		}
		header.Size = size
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(w, content); err != nil {
			return err
		}
		if err := content.Close(); err != nil {
			return err
		}
	}
	return w.Close()
}

// writeFile creates a file in one step: no reader finds a part of it.
func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if err := write(file); err != nil {
		_ = file.Close()
		return err
	}
	if err := file.Chmod(0o644); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// writeTarGz writes a .tar.gz file.
func writeTarGz(path string, at time.Time, entries []entry) error {
	return writeFile(path, func(out io.Writer) error {
		w, err := gzip.NewWriterLevel(out, gzip.BestCompression)
		if err != nil {
			return err
		}
		if err := writeTar(w, at, entries); err != nil {
			return err
		}
		return w.Close()
	})
}

// writeZip writes a .zip file, for Windows.
func writeZip(path string, at time.Time, entries []entry) error {
	return writeFile(path, func(out io.Writer) error {
		w := zip.NewWriter(out)
		for _, e := range entries {
			header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
			header.SetMode(fs.FileMode(e.mode))
			file, err := w.CreateHeader(header)
			if err != nil {
				return err
			}
			content, _, err := e.open()
			if err != nil {
				return err
			}
			if _, err := io.Copy(file, content); err != nil {
				return err
			}
			if err := content.Close(); err != nil {
				return err
			}
		}
		return w.Close()
	})
}

// directoryEntries returns all files below a directory, in the order of their names.
func directoryEntries(directory string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(directory, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == directory {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			entries = append(entries, entry{name: name + "/", mode: 0o755})
		} else {
			entries = append(entries, entry{name: name, mode: 0o644, path: path})
		}
		return nil
	})
	return entries, err
}
