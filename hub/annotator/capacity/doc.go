// Package capacity computes the capacity of a Kubernetes node from its EC2 instance type.
//
// Purpose: it is the only place where facts of EC2 become values of a node: processors,
// memory, architecture, accelerators, pods, instance store. It is pure: an answer of
// DescribeInstanceTypes in, a small comparable struct out.
//
// # Contract
//
// FromInstanceTypeInfo accepts any answer of EC2. For an answer without vCPUs or memory it
// returns an IncompleteError, never a zero: an autoscaler that reads a zero ignores the whole
// group. Other missing facts are zero values of the Capacity, which is then lower than the
// real one, never higher. Capacities with equal content are equal (==).
//
// # Trade-offs
//
// Memory is the value that EC2 lists. A node reports less, because its kernel and kubelet
// reserve a part. Other tools write the same value.
//
// The annotations can name only one kind of accelerator. Vendors whose device plugin has no
// fixed resource name (Qualcomm's AI 100, Xilinx' media accelerators and FPGAs) are left out.
// For a type with GPUs of two vendors, the first vendor is used.
package capacity
