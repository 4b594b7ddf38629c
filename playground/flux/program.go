package flux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/capstan-hub/capstan/playground/process"
)

const (
	kubeconfigMode = 0o600
	dataMode       = 0o700
	// off is the address of an endpoint that a program does not serve.
	off = "0"
)

// ErrNotBuilt is returned when the binary of a controller does not exist. The message has the
// target of make that builds it.
var ErrNotBuilt = errors.New("the controller is not built")

// program is a process of one of Flux's controllers, for one cluster. It serves neither metrics
// nor health.
type program struct {
	dir     string
	process *process.Process
}

// startProgram starts a controller for the cluster of the kubeconfig. arguments gets an empty
// directory for the controller's files, which Stop removes.
func startProgram(name string, kubeconfig []byte, arguments func(data string) []string) (_ *program, err error) {
	dir, err := os.MkdirTemp("", "capstan-"+name+"-")
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &program{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("starting %s: %w", name, err), p.Stop())
		}
	}()
	credentials := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(credentials, kubeconfig, kubeconfigMode); err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, dataMode); err != nil {
		return nil, err
	}
	path := process.Built(name)
	p.process, err = process.Start(process.Options{
		Path: path,
		Args: append([]string{"--metrics-addr=" + off, "--health-addr=" + off}, arguments(data)...),
		// There is no flag for the kubeconfig; Helm keeps its caches under HOME.
		Env: []string{"KUBECONFIG=" + credentials, "RUNTIME_NAMESPACE=flux-system", "HOME=" + dir, "TMPDIR=" + dir},
		Dir: dir, Log: filepath.Join(dir, "log"),
	})
	if errors.Is(err, process.ErrNotBuilt) {
		return nil, fmt.Errorf("%w: run `make %s` (%s does not exist)", ErrNotBuilt, name, path)
	}
	return p, err
}

// Log returns the end of its output.
func (p *program) Log() string { return p.process.Tail() }

// Stop ends the process. It also returns an error if the process had ended before.
func (p *program) Stop() error {
	var err error
	if p.process != nil {
		err = p.process.Stop()
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}
