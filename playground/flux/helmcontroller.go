package flux

// HelmController is a process of Flux's helm-controller, for one cluster.
type HelmController struct{ *program }

// StartHelmController starts helm-controller for the cluster of the kubeconfig. It serves
// no endpoint; its results are in the HelmReleases.
func StartHelmController(kubeconfig []byte) (*HelmController, error) {
	p, err := startProgram("helm-controller", kubeconfig, func(string) []string { return nil })
	if err != nil {
		return nil, err
	}
	return &HelmController{p}, nil
}
