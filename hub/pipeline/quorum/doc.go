// Package quorum contains the rule by which an environment runs a revision: how many of its targets must, and which may be
// left out.
//
// # Purpose
//
// All parts of the hub mean the same when they say that an environment runs a revision, or that it is known what it runs: the
// decisions, soaks, verifications, checks and explanations use this package.
//
// # Contract
//
// All functions are pure: no clock, no client, no state. At most one revision is run by a Fleet, also if two hubs observe
// different halves of its targets.
//
// # Locking
//
// None.
//
// # Trade-offs
//
// A fleet that is read from a status (FleetOf) knows of the targets that the status does not list only how many they are.
package quorum
