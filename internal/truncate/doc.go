// Package truncate shortens text for users.
//
// Purpose: statuses, Events, logs and pull requests show text of other programs,
// which has no bound. They share one rule for shortening it.
//
// Contract: the result is valid UTF-8: each run of invalid bytes becomes one
// question mark. It never ends inside a character. Bytes and Prefix limit bytes,
// Runes limits characters (code points); the limit includes Mark. A limit that has
// no room for Mark returns the beginning without it. All functions are pure and
// return a part of the argument where they can.
//
// Locking: none.
//
// Trade-offs: the limit is exact in bytes or code points, not in columns of a
// terminal. Mark takes three bytes of UTF-8.
package truncate
