package flux

import "github.com/capstan-hub/capstan/playground/ports"

// SourceController is a process of Flux's source-controller, for one cluster.
type SourceController struct{ *program }

// StartSourceController starts source-controller for the cluster of the kubeconfig. It serves the
// artifacts at a free port of loopback, for controllers of this machine.
func StartSourceController(kubeconfig []byte) (*SourceController, error) {
	storage, err := ports.Free()
	if err != nil {
		return nil, err
	}
	p, err := startProgram("source-controller", kubeconfig, func(data string) []string {
		return []string{"--storage-addr=" + storage, "--storage-adv-addr=" + storage, "--storage-path=" + data}
	})
	if err != nil {
		return nil, err
	}
	return &SourceController{p}, nil
}
