package backend

import (
	"context"
	"errors"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/internal/allowedhosts"
)

// withhold replaces the active connection by one that sends nothing, if the Secret does not allow its host any more. Then
// the last good configuration must not be used: its credentials would go to that host.
func (r *Reconciler) withhold(name types.NamespacedName, e *entry, w desired, data map[string][]byte) error {
	used := e.active
	if used == nil || used.hosts == w.hosts || secretOf(used.config) != secretOf(w.config) {
		return nil
	}
	made, err := r.Openers[used.config.Type](Opening{Config: used.config, Secret: data, Hosts: w.hosts, Name: name.String(), Changed: func() {}})
	if err == nil {
		r.closeUnused(made)
		return nil
	}
	var refusal allowedhosts.Refusal
	if !errors.As(err, &refusal) {
		return nil
	}
	nothing := withheldSink{sink.Errorf(sink.Unavailable, sink.CodeForbiddenAddress, "secretRef %s: %w", secretOf(w.config), err)}
	e.next = &connection{desired: desired{config: used.config, hosts: w.hosts}, sink: nothing, stop: func() {}, lockedHealth: health{checked: true, err: nothing.why}}
	return r.activate(name, e)
}

// withheldSink sends nothing. Events wait in the queue.
type withheldSink struct{ why *sink.Error }

// Ping implements sink.Sink.
func (s withheldSink) Ping(context.Context) error { return s.why }

// Publish implements sink.Sink.
func (s withheldSink) Publish(context.Context, ce.Event) error { return s.why }

// Close implements sink.Sink.
func (withheldSink) Close(context.Context) error { return nil }

// withheld returns whether the connection sends nothing, because the Secret does not allow its host.
func (c *connection) withheld() bool {
	_, is := c.sink.(withheldSink)
	return is
}
