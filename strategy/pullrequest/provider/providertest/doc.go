// Package providertest simulates the published APIs of the five Git hosting services, as far
// as the package provider uses them, for tests.
//
// Contract: each Server is one repository whose pull requests are in memory. Paths, query
// parameters, paging, status codes and error bodies are those of the service's
// documentation. A Server responds to any other request as the service responds to an
// unknown path, and reports it to the test as an error. A fault replaces a request, or
// happens after the request took effect.
//
// Locking: all state of a Server that changes is in lockedState, under its mutex; hooks are
// called without it.
//
// Trade-offs: there is no Git repository unless a handler for it is given; a branch is a
// name and a commit.
package providertest
