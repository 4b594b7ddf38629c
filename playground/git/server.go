package git

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/capstan-hub/capstan/playground/process"
)

const (
	// startTimeout suits a machine with two busy cores; on an idle one Gitea responds
	// after 2 to 3 s.
	startTimeout = 90 * time.Second
	// requestTimeout bounds one call of its API.
	requestTimeout = 30 * time.Second
	pollEvery      = 50 * time.Millisecond
	launchTries    = 3

	host     = "127.0.0.1"
	dirMode  = 0o700
	fileMode = 0o600
)

// ErrNotBuilt is returned by Start when Gitea's binary does not exist.
var ErrNotBuilt = errors.New("gitea is not built: run `make gitea`")

// binary returns the path of Gitea. The files that it reads are next to it.
func binary() string { return process.Built("gitea") }

func staticFiles() string { return process.Built("gitea-files") }

// Account of a user.
type Account struct {
	Username string
	// Password and Token are equivalent; Gitea's Git accepts either as the password.
	Password, Token string
}

// Server is a running Gitea.
type Server struct {
	dir, url string
	ca       []byte
	process  *process.Process
	http     *http.Client
	admin    Account
}

// Start starts a Gitea. The context applies to the start only. Its certificate is for the names, too:
// those under which a proxy connects to it.
func Start(ctx context.Context, names ...string) (_ *Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "capstan-gitea-")
	if err != nil {
		return nil, fmt.Errorf("creating Gitea's directory: %w", err)
	}
	s := &Server{dir: dir, admin: Account{Username: "keeper", Password: rand.Text()}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("starting Gitea: %w", err), s.Stop())
		}
	}()
	if err := s.certify(names); err != nil {
		return nil, err
	}
	if err := s.launch(ctx); err != nil {
		return nil, err
	}
	// The first user cannot be created by the API.
	if err := s.command(ctx, "admin", "user", "create", "--admin", "--must-change-password=false",
		"--username", s.admin.Username, "--password", s.admin.Password, "--email", s.admin.Username+"@playground.invalid"); err != nil {
		return nil, err
	}
	if s.admin.Token, err = s.token(ctx, s.admin, scopeAll); err != nil {
		return nil, err
	}
	return s, nil
}

// Stop ends the process and removes its files. It also returns an error if Gitea had ended
// before.
func (s *Server) Stop() error {
	var errs []error
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
	if s.process != nil {
		errs = append(errs, s.process.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// Alive waits until the context ends. It returns an error if Gitea ends before that.
func (s *Server) Alive(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.process.Ended():
		return s.process.Err()
	}
}

// URL returns the URL of Gitea, as https://127.0.0.1:port.
func (s *Server) URL() string { return s.url }

// CA returns the CA certificate of Gitea, in PEM format.
func (s *Server) CA() []byte { return s.ca }

// Log returns the end of Gitea's output.
func (s *Server) Log() string { return s.process.Tail() }

// launch starts the process on a port that was just free, and waits until it responds. If
// another process took the port meanwhile, it tries another one. (Gitea can inherit a
// listener, but then assumes a restart of itself and ends its parent.)
func (s *Server) launch(ctx context.Context) error {
	for try := 1; ; try++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.url = "https://" + net.JoinHostPort(host, strconv.Itoa(port))
		if err := os.WriteFile(s.path("app.ini"), []byte(s.config(port)), fileMode); err != nil {
			return err
		}
		s.process, err = process.Start(process.Options{
			Path: binary(), Args: []string{"web", "--config", s.path("app.ini")},
			Env: s.env(), Dir: s.dir, Log: s.path("gitea.log"),
		})
		if errors.Is(err, process.ErrNotBuilt) {
			return fmt.Errorf("%w (%s does not have it)", ErrNotBuilt, filepath.Dir(binary()))
		}
		if err != nil {
			return err
		}
		err = s.ready(ctx)
		if err == nil || try == launchTries || !strings.Contains(s.process.Tail(), syscall.EADDRINUSE.Error()) {
			return err
		}
	}
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

// certify creates a certificate authority and Gitea's certificate, for the names as well.
func (s *Server) certify(names []string) error {
	chain, key, err := cert.GenerateSelfSignedCertKey(host, []net.IP{net.ParseIP(host)}, names)
	if err != nil {
		return fmt.Errorf("creating a certificate: %w", err)
	}
	certificates, err := cert.ParseCertsPEM(chain)
	if err != nil {
		return fmt.Errorf("creating a certificate: %w", err)
	}
	authority := certificates[len(certificates)-1]
	if s.ca, err = cert.EncodeCertificates(authority); err != nil {
		return err
	}
	for name, content := range map[string][]byte{"tls.crt": chain, "tls.key": key} {
		if err := os.WriteFile(s.path(name), content, fileMode); err != nil {
			return err
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	s.http = &http.Client{
		Timeout:   requestTimeout,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	}
	return nil
}

// ready waits until Gitea reports that it is healthy.
func (s *Server) ready(ctx context.Context) error {
	return s.poll(ctx, func() (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/healthz", nil)
		if err != nil {
			return false, err
		}
		response, err := s.http.Do(request)
		if err != nil {
			return false, nil //nolint:nilerr // It does not run yet; poll returns when the process ended.
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK, nil
	})
}

// poll calls its function until it is done, the context ends or Gitea ends.
func (s *Server) poll(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-s.process.Ended():
			return s.process.Err()
		case <-ctx.Done():
			return fmt.Errorf("%w; last output of Gitea:\n%s", ctx.Err(), s.process.Tail())
		}
	}
}

// command runs one of Gitea's commands until it ends.
func (s *Server) command(ctx context.Context, args ...string) error {
	p, err := process.Start(process.Options{
		Path: binary(), Args: append(args, "--config", s.path("app.ini")),
		Env: s.env(), Dir: s.dir, Log: s.path("command.log"),
	})
	if err != nil {
		return err
	}
	select {
	case <-p.Ended():
		if code := p.ExitCode(); code != 0 {
			return fmt.Errorf("gitea %s ended with code %d: %s", strings.Join(args[:3], " "), code, p.Tail())
		}
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.Kill())
	}
}

func (s *Server) env() []string {
	// The git configurations of the user and of the system are not used.
	return []string{"HOME=" + s.dir, "GIT_CONFIG_NOSYSTEM=1", "GITEA_WORK_DIR=" + s.dir}
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }
