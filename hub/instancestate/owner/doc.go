// Package owner knows which objects stand for an instance or an Auto Scaling group.
//
// Purpose: a fact finds its objects in memory, without a call to AWS or to an API
// server, however many clusters, accounts and regions there are; and what finds none
// waits, for a while, for its object to appear.
//
// Contract: Index is told by Set and Delete what informers see, and Find answers from
// that. An AWSMachine stands for its instance; an AWSMachinePool for its group, and for
// those of its instances that have no AWSMachine. A group is found by its ARN; by its
// name only while the pool's ARN is not known, and only if one pool in the account and
// region has that name. What is of another account or region than the object's cluster
// is Foreign: whoever can write to a queue may not label machines that are not theirs.
// Which account and region that is, the caller says at every Find: it may become known
// later than the object.
//
// Ring keeps the newest of what nothing stood for, by instance and by group, bounded
// in number, bytes and time.
//
// Locking: one mutex each, held for access of maps only; Find calls back under Index's,
// and what it calls may not come back.
//
// Trade-offs: several objects may stand for one instance, as while a cluster is moved;
// all of them are found.
package owner
