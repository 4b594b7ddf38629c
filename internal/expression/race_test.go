//go:build race

package expression

// slow is how many times slower the race detector makes tests.
const slow = 40
