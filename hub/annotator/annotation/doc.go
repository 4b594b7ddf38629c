// Package annotation converts the capacity of a future node to annotations of its node group.
//
// Purpose: it is the only place that knows the keys and formats that autoscalers read, and
// who set a value. It is pure: the annotations of an object and a Node in, a Change out.
//
// # Formats
//
// Two families of keys. Upstream's (capacity.cluster-autoscaler.kubernetes.io/*) is
// what cluster-autoscaler's clusterapi provider and karpenter-provider-cluster-api
// read; if a value there does not parse, cluster-autoscaler ignores the group without
// a message. The requirements define OpenShift's keys (machine.openshift.io/*), which
// OpenShift's fork of cluster-autoscaler reads. Memory is a quantity in bytes in the first
// family ("8192Mi") and a number of MiB in the second. Only the legacy count of GPUs is ever
// written as zero. A count of accelerators is never written without their resource.
//
// # Whose a value is
//
// The annotation Applied records, as JSON, what was written here. A value equal to the record
// is ours: it follows the Node, and is removed when the Node has no such value. Any other
// value belongs to a user and is not changed. The requirements make two exceptions: a legacy
// key that was never recorded is overwritten, and the label kubernetes.io/arch always is. The
// labels share one annotation, so each label has its own record.
//
// # Trade-offs
//
// If the record cannot be read, a value counts as ours if it equals the computed one.
// Otherwise, values that were written here would never be removed.
//
// The record is an annotation because clusterctl move does not keep managedFields.
package annotation
