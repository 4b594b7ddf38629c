// Package collectors registers the metrics of one part of the hub.
//
// # Purpose
//
// Every part makes its own collectors when it is constructed, and registers them with the
// registry that its Options name. No package registers in init(): a program that imports a
// package has none of its metrics, and two hubs in one process have their own.
//
// # Contract
//
// Register registers all collectors or none.
//
// # Locking
//
// None: registries lock themselves.
//
// # Trade-offs
//
// A registry that has a metric of the same name already is an error, not ignored: the
// second hub would count into collectors that no registry reads.
package collectors
