// Package conventions holds tests of rules that the code of all packages follows, and that
// no linter knows. They read the source without building it, and name file and line of
// what breaks a rule.
//
//   - locking_test.go: the section "Locking" of CONTRIBUTING.md.
package conventions
