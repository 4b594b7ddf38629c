// Package window decides when promotions are allowed by time: windows in which they may begin
// (Allow) or may not (Deny), in the civil time of a zone or between two instants.
//
// Contract: everything is a function of its arguments; there is no clock. A Window remembers a few results of At, so
// that many judgements between two of its changes walk its schedule once. A window that is
// invalid cannot be made: Parse says which field to correct. The zones are those of time/tzdata,
// which is embedded, so that a container without a zone database has the same answers.
//
// # Civil time
//
// A schedule names civil times, and a duration is civil, too: 22:00 for 8 hours ends at 06:00, also
// in the night in which clocks change. So start and end are mapped to instants one by one:
//
//   - A civil time that does not exist, because clocks skip it, is the first instant after the gap.
//   - A civil time that occurs twice has two readings. A Deny takes the longest window, from the
//     first reading of its start to the second of its end; an Allow takes the shortest.
//   - If that leaves nothing of an Allow, it takes the second reading of both. A Deny that lies in a gap
//     lasts its duration from the end of the gap. An Allow there is empty.
//
// No window is skipped, and none occurs twice.
//
// # Locking
//
// Window.mu guards the remembered results, for field access only.
//
// # Trade-offs
//
// The fields of a schedule are parsed by robfig/cron, which also parses the CronJobs of Kubernetes.
// Its own walk over a zone is not used, because it skips times in a gap: a Deny would silently not
// happen. Day of month and day of week are not combined, because cron would take either.
package window
