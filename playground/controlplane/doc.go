// Package controlplane starts real Kubernetes control planes (kube-apiserver and
// etcd) as processes on loopback, for the playground and for every test.
//
// Contract: Start returns when the API server is ready. Stop ends both processes. All ports
// are free ones. `make controlplane` builds the binaries into bin/envtest; KUBEBUILDER_ASSETS
// names another directory.
//
// A Proxy between a client and a control plane can refuse or block connections, like a faulty
// network.
package controlplane
