package flux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/capstan-hub/capstan/playground/process"
)

const kubeconfigMode = 0o600

// ErrNotBuilt is returned by StartHelmController when the binary does not exist.
var ErrNotBuilt = errors.New("helm-controller is not built: run `make helm-controller`")

// HelmController is a process of Flux's helm-controller, for one cluster.
type HelmController struct {
	dir     string
	process *process.Process
}

// StartHelmController starts helm-controller for the cluster of the kubeconfig. It serves
// no endpoint; its results are in the HelmReleases.
func StartHelmController(kubeconfig []byte) (_ *HelmController, err error) {
	dir, err := os.MkdirTemp("", "capstan-helm-controller-")
	if err != nil {
		return nil, fmt.Errorf("starting helm-controller: %w", err)
	}
	h := &HelmController{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("starting helm-controller: %w", err), h.Stop())
		}
	}()
	credentials := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(credentials, kubeconfig, kubeconfigMode); err != nil {
		return nil, err
	}
	const off = "0"
	path := process.Built("helm-controller")
	h.process, err = process.Start(process.Options{
		Path: path,
		Args: []string{"--metrics-addr=" + off, "--health-addr=" + off},
		// There is no flag for the kubeconfig; Helm keeps its caches under HOME.
		Env: []string{"KUBECONFIG=" + credentials, "RUNTIME_NAMESPACE=flux-system", "HOME=" + dir, "TMPDIR=" + dir},
		Dir: dir, Log: filepath.Join(dir, "log"),
	})
	if errors.Is(err, process.ErrNotBuilt) {
		return nil, fmt.Errorf("%w (%s does not exist)", ErrNotBuilt, path)
	}
	return h, err
}

// Log returns the end of its output.
func (h *HelmController) Log() string { return h.process.Tail() }

// Stop ends the process. It also returns an error if the process had ended before.
func (h *HelmController) Stop() error {
	var err error
	if h.process != nil {
		err = h.process.Stop()
	}
	return errors.Join(err, os.RemoveAll(h.dir))
}
