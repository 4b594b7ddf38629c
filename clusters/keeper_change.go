package clusters

import (
	"time"
)

// apply applies an event to the state machine.
func (k *keeper) apply(e event, message string) { k.change(e, message, nil) }

// change is the only function that changes the state. It edits the locked state. Then it
// notifies the transport, the log, the listeners and the ClusterConnection, in this order
// and with no lock held.
func (k *keeper) change(e event, message string, edit func(*keeperState)) {
	k.mu.Lock()
	from := k.snapshotLocked()
	if edit != nil {
		edit(&k.lockedState)
	}
	was := outcome{from.State, from.Reason}
	is := next(was, e)
	s := &k.lockedState.snapshot
	s.State, s.Reason = is.State, is.Reason
	if is.State != was.State {
		s.Since = k.m.clock.Now()
	}
	oldMessage := s.Message
	if is != was || replacesMessage(e) {
		s.Message = message
	}
	messageChanged := s.Message != oldMessage
	connection := k.lockedState.connection
	to := k.snapshotLocked()
	k.mu.Unlock()

	if !passes(to.State) {
		k.versionAt = time.Time{} // After the outage it may be another cluster, or a newer version.
	}
	switch now := k.m.clock.Now(); {
	case isOutage(is) && !isOutage(was):
		k.failedAt = now
	case isOutage(was) && !isOutage(is) && passes(is.State):
		k.returned = now
	}
	if connection != nil {
		open := passes(to.State) && !k.waits
		if open && !connection.transport.IsOpen() {
			connection.transport.SetSpread(k.m.returns.spread(k.m.clock.Now(), k.m.timings.ReleaseSpread))
		}
		connection.transport.SetOpen(open)
		if passes(from.State) && !passes(to.State) {
			// Open streams would end one by one, each at its own timeout. Closed now,
			// they resume through the gate.
			connection.transport.CloseConnections()
		}
	}
	changed := is != was || from.Epoch != to.Epoch
	if changed {
		k.log.Info("connection changed", "from", from.State, "to", to.State, "reason", to.Reason, "epoch", to.Epoch, "message", to.Message)
	}
	if changed || messageChanged && !passes(to.State) { // Listeners do not use the message of a cluster that answers.
		k.notify(from, to)
	}
	if changed || messageChanged {
		k.publish()
	}
}

// notify passes a change to the listeners.
func (k *keeper) notify(from, to Snapshot) {
	for _, l := range k.m.listeners {
		l.ConnectionChanged(from, to)
	}
}

// replacesMessage reports whether the message of an event replaces the existing message
// when state and reason stay the same. The message of a failed probe does not: it may
// differ for each probe, and each change would be a write.
func replacesMessage(e event) bool {
	switch e {
	case eventHubUnreadable, eventSecretMissing, eventSecretForbidden, eventRefused, eventRemoved, eventKinds:
		return true
	case eventDemanded, eventReleased, eventAccepted, eventReplaced, eventAnswered, eventHealthy,
		eventNewServer, eventProbeForbidden, eventMissed, eventFailing, eventLost, eventRejected, eventUnauthorized, eventCount:
	}
	return false
}

// publish passes the desired ClusterConnection to the writer. The keeper's goroutine and that of
// ReportKinds may call it at the same time.
func (k *keeper) publish() {
	if k.ref.IsLocal() {
		return
	}
	k.queueStatus()
	k.m.writer.poke()
}

// queueStatus queues the desired ClusterConnection. The mutex is held until then, so that the
// newest status is the last one.
func (k *keeper) queueStatus() {
	now := k.m.clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	object, found := k.m.objects.find(k.ref)
	want := desired{
		ref:    k.ref,
		status: statusOf(k.lockedState.snapshot, k.lockedState.kinds, k.lockedState.apps),
		brief:  isBrief(k.lockedState.snapshot, now),
	}
	k.lockedState.brief = want.brief
	if found == presencePresent && !object.Deleting {
		want.owner, want.create = object, true
	}
	k.m.writer.queue(k.name, want)
}

// publishOverdue publishes the state again when it lasts longer than was expected.
func (k *keeper) publishOverdue() {
	if until := k.briefUntil(); !until.IsZero() && !k.m.clock.Now().Before(until) {
		k.publish()
	}
}

// briefUntil returns when a state that was published as brief is overdue; zero if none was.
func (k *keeper) briefUntil() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.lockedState.brief {
		return time.Time{}
	}
	return k.lockedState.snapshot.Since.Add(connectingLimit)
}
