// Package catalogue knows what the instance types of each region of AWS offer.
//
// Purpose: a reconciler asks for the capacity of a type and gets it from memory; EC2 is
// called seldom, whatever is asked, and whatever state it is in.
//
// # Contract
//
// Get answers from memory what was seen in the last Timings.MostStale, however EC2 is
// doing. A region is listed when it is first asked about, and about every
// Timings.Refresh for as long as it is. A type that the listing lacks is looked up by
// name, together with all others that are wanted by then, and is ErrInstanceTypeUnknown
// for Timings.Negative if EC2 does not have it. A type that EC2 no longer lists (it was
// retired) is still answered for until it is stale.
//
// Whoever waits in Get waits no longer than its own context; the call goes on, and
// Notify tells when there is an answer, or a failure in place of it. A reconciler does
// best not to wait and be woken: then a region that hangs holds none of its workers.
//
// A failure is an *Error of a class, answered from memory for its RetryAfter, which
// doubles: thousands who ask are one call. Its message names what to mend and holds
// nothing that varies. Data that is known is not affected by failures.
//
// # Accounts
//
// What a type offers does not depend on who asks, so capacities are kept by region
// alone, and one listing serves every role. What does depend is kept by role: a denial
// or a throttle of one account keeps no other waiting, and a type that one account is
// not shown may be shown to another. A region that does not answer fails for all at once.
//
// # Goroutines and locking
//
// Start owns one goroutine for each region, its keeper, which makes all calls there, one
// at a time; so there is never a second listing under way. It sleeps until somebody
// wants what is not known, or a listing is due. EC2.mu guards the map of regions,
// region.mu what is known of one; they are held for memory only, in that order.
// Callbacks of Notify are called by keepers, without locks.
//
// # Bounds
//
// Regions, roles, wanted and unknown types are named by users, so each of these is
// bounded; beyond its bound something is forgotten and found again. Capacities are kept
// as interned values (unique): 20 regions of 1,400 types cost about 3 MiB.
//
// # Trade-offs
//
// Types are looked up by a filter, not by InstanceTypes: one name that EC2 does not have
// fails a whole call with InvalidInstanceType, a filter leaves it out.
//
// A region is not refreshed while nobody asks. The next who does gets the older answer,
// and Notify tells if the listing that it causes changes anything.
package catalogue
