// Package firstrun tests the scripts in hack that put programs into bin/ on the first run.
//
// Purpose: a machine that has a control plane or a Gitea in the right version compiles
// neither. A wrong version, a missing program or a refused download never fails the run.
//
// Contract: each test runs the real script in a copy of its part of the repository, with
// programs that only print a version, and with a build that only leaves a mark.
//
// Locking: none.
//
// Trade-offs: nothing is downloaded or compiled here; `make demo` does that.
package firstrun
