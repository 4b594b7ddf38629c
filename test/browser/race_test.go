//go:build race

package browser

// slower is how many times slower a program is with the race detector: budgets of time are as many times larger.
const slower = 10
