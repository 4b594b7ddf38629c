// Package capacity says what a node of an EC2 instance type would offer to
// Kubernetes.
//
// Purpose: the one place where facts of EC2 become figures of a node: processors,
// memory, architecture, accelerators, pods, instance store. It is pure: an answer of
// DescribeInstanceTypes in, a small comparable struct out.
//
// # Contract
//
// FromInstanceTypeInfo takes whatever EC2 may answer. An answer without vCPUs or
// memory is half an answer: an IncompleteError, never a zero, for an autoscaler that
// reads a zero drops the whole group. Everything else that is missing is absent from
// the Capacity, which then promises less, not more. Capacities are equal (==) when
// all that they say is.
//
// # Trade-offs
//
// Memory is what EC2 sells, not what a node reports after its kernel and kubelet
// took their share: the figure that other tools write as well.
//
// An autoscaler can be told of one kind of accelerator only. Vendors whose device
// plugin has no settled resource name (Qualcomm's AI 100, Xilinx' media accelerators
// and FPGAs) are left out; a type with GPUs of two vendors is known by the first.
package capacity
