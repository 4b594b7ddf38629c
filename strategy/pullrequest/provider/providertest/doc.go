// Package providertest is servers that speak the published APIs of the five Git
// hosting services as far as the package provider uses them, for tests.
//
// Contract: each is one repository whose pull requests live in memory. Paths,
// query parameters, paging, status codes and bodies of errors are those of the
// service's documentation; whatever else is asked for is answered as the service
// answers an unknown path, and told to the test as an error. Faults can be laid
// before an act, or after it took effect.
//
// Locking: everything of a Server that changes stands in lockedState, under its
// mutex; hooks are called without it.
//
// Trade-offs: there is no Git behind it unless a handler for it is given; a branch
// is a name and a commit.
package providertest
