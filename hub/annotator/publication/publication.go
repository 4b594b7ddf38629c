package publication

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/internal/hubname"
)

const (
	// Name of the ConfigMap in the hub's namespace. The Roles that ship name it.
	Name = "capstan-catalogue"
	// Key of the ConfigMap: a catalogue.State as JSON.
	Key = "catalogue.json"
	// Interval between two comparisons of the state.
	Interval = 2 * time.Second
	// writeTimeout bounds a write.
	writeTimeout = 10 * time.Second
)

// NameOf returns the name of the ConfigMap of a hub. Several hubs in a management cluster have the same namespace.
func NameOf(hub string) string {
	return hubname.Of(Name, hub)
}

// Publisher publishes a state. It is a manager.Runnable for the leader.
type Publisher struct {
	// State returns the present state.
	State func() catalogue.State
	// Client writes the ConfigMap Namespace/Name.
	Client          client.Writer
	Namespace, Name string
	Clock           clock.WithTicker
	Logger          logr.Logger
}

// Start publishes until the context ends.
func (p *Publisher) Start(ctx context.Context) error {
	ticker := p.Clock.NewTicker(Interval)
	defer ticker.Stop()
	var written, failed string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		state := p.State()
		raw, err := json.Marshal(state)
		if err != nil {
			return fmt.Errorf("encoding the state of the catalogue: %w", err) // Not expected: its times are of this century.
		}
		if string(raw) == written {
			continue
		}
		switch err := p.write(ctx, string(raw), len(state.Regions) > 0); {
		case err == nil:
			written, failed = string(raw), ""
		case ctx.Err() == nil && err.Error() != failed:
			failed = err.Error()
			p.Logger.Info("Publishing the state of the catalogue failed; it is tried again", "namespace", p.Namespace, "name", p.Name, "error", failed)
		}
	}
}

// write replaces the value of the ConfigMap. It creates a missing one if create is set.
func (p *Publisher) write(ctx context.Context, value string, create bool) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: map[string]string{"app.kubernetes.io/part-of": "capstan"}},
		Data:       map[string]string{Key: value},
	}
	err := p.Client.Update(ctx, m)
	if !apierrors.IsNotFound(err) {
		return err
	}
	if !create {
		return nil
	}
	return p.Client.Create(ctx, m)
}

// Read returns the published state of a hub in a namespace. Errors: those of the reader, and of a
// value that cannot be decoded.
func Read(ctx context.Context, c client.Reader, namespace, hub string) (catalogue.State, error) {
	var m corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: NameOf(hub)}, &m); err != nil {
		return catalogue.State{}, err
	}
	var s catalogue.State
	if err := json.Unmarshal([]byte(m.Data[Key]), &s); err != nil {
		return catalogue.State{}, fmt.Errorf("ConfigMap %s/%s: key %s cannot be decoded; the hub replaces it at the next change: %w", namespace, NameOf(hub), Key, err)
	}
	return s, nil
}
