// Package controlplane starts real Kubernetes control planes (kube-apiserver and
// etcd) as processes on loopback, for the playground and for every test.
//
// Contract: Start returns when the API server is ready; Stop ends both
// processes. Every port is a free one. The binaries are those of `make
// controlplane` (bin/envtest), or of the directory that KUBEBUILDER_ASSETS names.
//
// A Proxy stands between a client and a control plane and can refuse or swallow
// its connections, as a network does.
package controlplane
