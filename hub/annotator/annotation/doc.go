// Package annotation is how a node group says what a node of it would be.
//
// Purpose: the one place that knows the keys and formats that autoscalers read, and
// whose a value is. It is pure: the annotations of an object and a Node in, what to
// change out.
//
// # Formats
//
// Two families of keys. Upstream's (capacity.cluster-autoscaler.kubernetes.io/*) is
// what cluster-autoscaler's clusterapi provider and karpenter-provider-cluster-api
// read; a value there that does not parse makes cluster-autoscaler drop the group in
// silence. OpenShift's (machine.openshift.io/*) is what the seed of this tool wrote
// and OpenShift's fork still reads. Memory is a quantity in bytes in the one ("8192Mi")
// and a number of MiB in the other. Nothing is ever written as zero but the legacy
// count of GPUs, and a count of accelerators never without their resource.
//
// # Whose a value is
//
// Applied records, as JSON, what was written here. A value that is as recorded is
// ours: it follows the Node, and goes when the Node has no more of it. Any other is
// somebody's own: it stays, unchanged. Two exceptions come from the seed: a legacy
// key that was never recorded is overwritten, and the label kubernetes.io/arch always
// is. The labels share one annotation, so that each label has a record of its own.
//
// # Trade-offs
//
// A record that cannot be read tells nothing: then a value that is as it would be
// written counts as ours, for else what was written here would stay for ever.
//
// The record is an annotation because managedFields do not survive clusterctl move.
package annotation
