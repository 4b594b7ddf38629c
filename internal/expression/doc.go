// Package expression compiles and evaluates conditions that users write in CEL.
//
// # Purpose
//
// A check of an environment is a condition over its targets, or over a number that was measured.
// Users write it in their Pipelines. This package bounds what such a text may cost, and says what
// is wrong with it.
//
// # Contract
//
// An expression of ForTargets has these variables; its value is a bool:
//
//	targets, sourceTargets   lists of objects with the fields cluster, namespace, revision and
//	                         message (string), ready and progressing (bool)
//	revision                 string
//	from                     list of strings
//	environment, source      string
//
// An expression of ForValue has the variable value, a double. Integer literals may be compared with
// it and used in arithmetic. Both have the standard functions of CEL, the extensions strings and
// sets of cel-go, and
//
//	isSemver(string) bool
//	compareSemver(string, string) int   -1, 0 or 1; an error if one is no semantic version
//
// A misspelt name or field is an error of compiling. has() of a field is false if it is empty or
// false. No function does I/O or reads the clock.
//
// Limits: 4096 bytes of text; 100,000 units of CEL's runtime cost; a regular expression is a
// literal with at most 500 instructions. These have no bound of time in cel-go, and are refused:
// maps, objects, lists in lists, and the functions dyn and format. A function whose time is a
// product of sizes is refused before the call if the product is above 1,000,000. The functions of
// timestamps are refused, as they read files with time zones.
//
// An error is one line of at most 300 bytes that names the place in the text. It may contain parts
// of the text and of the variables.
//
// Compiled expressions and errors are kept: the 4096 that were used last, with at most 1 MiB of text
// together. So callers compile at each reconcile. They take about 13 KB for a usual text, and 80 MB at
// most for all.
//
// # Locking
//
// cache.mu guards the outcomes that are kept. The cache of k8s.io/utils has a lock too, which is taken
// under it. Texts are compiled without it. An Expression has no
// state: several goroutines may evaluate it.
//
// # Trade-offs
//
// 100,000 units take some 30 ms. An expression that compares each of 300 targets with each other is
// refused. Compiling takes 0.3 ms for a usual text, and up to 0.1 s for the longest.
//
// Targets have a type provider of their own. ext.NativeTypes of cel-go needs less code, but reads
// each field by reflection. The condition of BenchmarkEval20 takes 28 µs for 20 targets.
package expression
