package flux

// KustomizeController is a process of Flux's kustomize-controller, for one cluster.
type KustomizeController struct{ *program }

// StartKustomizeController starts kustomize-controller for the cluster of the kubeconfig. It
// serves no endpoint; its results are in the Kustomizations and in what they apply.
func StartKustomizeController(kubeconfig []byte) (*KustomizeController, error) {
	// It retries the artifact of a source that has just changed, and objects whose dependencies
	// are not ready, after seconds.
	p, err := startProgram("kustomize-controller", kubeconfig, func(string) []string { return []string{"--requeue-dependency=1s"} })
	if err != nil {
		return nil, err
	}
	return &KustomizeController{p}, nil
}
