// Package catalogue returns the capacity of the instance types of each AWS region.
//
// Purpose: a reconciler queries the capacity of a type and gets it from memory. The number of
// calls to EC2 is small, independent of the queries and of the state of EC2.
//
// # Contract
//
// Get answers from memory with data that is at most Timings.MostStale old, also while EC2 is
// unreachable. A region is listed at the first query, and then about every Timings.Refresh
// while queries continue. A type that is not in the listing is looked up by name, together
// with all other requested types. If EC2 does not have it, the answer is
// ErrInstanceTypeUnknown for Timings.Negative. A type that EC2 no longer lists (it was
// retired) is still answered until it is stale.
//
// A caller of Get waits at most until its context ends. The call to EC2 continues, and Notify
// reports when there is an answer, or a failure in place of it. A reconciler should not wait,
// and rely on Notify: then a region that does not answer blocks no worker.
//
// A failure is an *Error of a class. It is answered from memory for its RetryAfter, which
// doubles: thousands of queries result in one call. Its message names what to fix, and has no
// variable parts. Failures do not affect known data.
//
// # Accounts
//
// The capacity of a type does not depend on the account, so capacities are kept by region
// only, and one listing serves every role. Results that depend on the account are kept by
// role: a denial or a throttle of one account does not block others, and a type that EC2 does
// not show to one account may be shown to another. The failure of a region that does not
// answer applies to all roles.
//
// # Goroutines and locking
//
// Start owns one goroutine for each region, its keeper. The keeper makes all calls to the
// region, one at a time; so there are never two listings at once. It sleeps until a query needs
// unknown data, or a listing is due. EC2.mu guards the map of regions, region.mu the data of
// one region. They are held only for access to memory, in that order. Keepers call the
// callbacks of Notify without locks.
//
// # Bounds
//
// Users name regions, roles and types, so the maps of regions, roles, requested and unknown
// types are bounded. Beyond a bound an entry is removed, and queried again when needed.
// Capacities are kept as interned values (unique): 20 regions of 1,400 types need about 3 MiB.
//
// # Trade-offs
//
// Types are looked up by a filter, not by InstanceTypes: one name that EC2 does not have
// fails the whole call with InvalidInstanceType. A filter leaves it out.
//
// A region without queries is not refreshed. The next query gets the older answer and triggers
// a listing, and Notify reports if that listing changes anything.
package catalogue
