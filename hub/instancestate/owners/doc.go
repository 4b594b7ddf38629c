// Package owners knows which object stands for an instance or an Auto Scaling group.
//
// Purpose: a fact finds its object in memory: without a call to AWS, and without a list
// of the API server, however many clusters there are.
//
// Contract: Set and Delete tell it what informers see; Find answers from that. An
// AWSMachine owns its instance. An AWSMachinePool, or AWSManagedMachinePool, owns its
// group, and those of its instances that have no AWSMachine. A group is found by its ARN,
// which says account and region too; by its name only where no ARN is known, and then
// only if the name is one object's. What is of another account or region than the owner's
// cluster is Foreign, so that whoever can write to the queue cannot label machines that
// are not theirs.
//
// Locking: Index.mu guards all of it; no call is made under it.
//
// Trade-offs: several objects may stand for one instance, such as while a cluster is
// moved: all of them are found.
package owners
