// Package owner finds the objects that represent an instance or an Auto Scaling group.
//
// Purpose: a fact finds its objects in memory, without a call to AWS or to an API server,
// for any number of clusters, accounts and regions. A fact without an object waits a
// limited time for its object to appear.
//
// Contract: the caller updates Index by Set and Delete from watches, and Find reads it.
// An AWSMachine represents its instance. A pool represents those of its instances that have
// no AWSMachine. An AWSMachinePool and an AWSManagedMachinePool also represent a group. Find
// uses the ARN of a group. For an AWSMachinePool it uses the name only while the pool's ARN is
// not known, and only if one pool in the account and region has that name. An
// AWSManagedMachinePool never names its group: Find uses the instance of the fact, else the
// ARN that was learned from such facts, if one pool in the account and region learned it. A
// fact of another account or region than the object's cluster is Foreign:
// a client that can write to a queue must not label machines of other accounts. The caller
// passes a function for the account and region to every Find, as they may become known
// later than the object.
//
// Ring keeps the newest facts without an object, by instance and by group; a fact of a group
// also by its instance. It is bounded in number, bytes and time.
//
// Locking: Index and Ring have one mutex each, which protects access to maps only. Find
// calls its function under the mutex of Index; this function must not call Index.
//
// Trade-offs: several objects may represent one instance, for example while a cluster is
// moved. Find returns all of them.
package owner
