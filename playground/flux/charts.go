package flux

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
	"time"
)

const chartHeaderTimeout = 5 * time.Second

// Charts is a chart store on loopback, like that of source-controller. It serves the
// archive of any chart at any exact version, always with the same bytes. A chart consists
// of one ConfigMap, so that an installation has an object and needs no kubelet.
type Charts struct {
	listener net.Listener
	server   *http.Server
}

// NewCharts listens on a free port; Start serves.
func NewCharts() (*Charts, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for charts: %w", err)
	}
	c := &Charts{listener: listener}
	c.server = &http.Server{Handler: http.HandlerFunc(c.serve), ReadHeaderTimeout: chartHeaderTimeout}
	return c, nil
}

// Start serves until the context ends.
func (c *Charts) Start(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = c.server.Close() })
	defer stop()
	if err := c.server.Serve(c.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving charts: %w", err)
	}
	return nil
}

// url returns the URL of a chart's archive.
func (c *Charts) url(chart, version string) string {
	return "http://" + c.listener.Addr().String() + archivePath(chart, version)
}

func archivePath(chart, version string) string {
	return path.Join("/", chart, chart+"-"+version+".tgz")
}

func (c *Charts) serve(w http.ResponseWriter, r *http.Request) {
	chart, file := path.Split(strings.TrimPrefix(r.URL.Path, "/"))
	chart = strings.TrimSuffix(chart, "/")
	version, ours := strings.CutPrefix(strings.TrimSuffix(file, ".tgz"), chart+"-")
	if !ours || archivePath(chart, version) != r.URL.Path {
		http.NotFound(w, r)
		return
	}
	archive, err := archive(chart, version)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(archive)
}

// digest returns the digest of an archive, as sha256:<hex>.
func digest(archive []byte) string {
	sum := sha256.Sum256(archive)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// archive returns the archive of a chart; the same arguments give the same bytes.
func archive(chart, version string) ([]byte, error) {
	const mode = 0o644
	files := []struct{ name, content string }{
		{"Chart.yaml", fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %q\nappVersion: %q\n", chart, version, version)},
		{"templates/configmap.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  version: {{ .Chart.AppVersion | quote }}\n"},
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	tape := tar.NewWriter(zip)
	for _, f := range files {
		header := &tar.Header{Name: path.Join(chart, f.name), Mode: mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if err := tape.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := tape.Write([]byte(f.content)); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(tape.Close(), zip.Close()); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
