package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	ce "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/playground/nats"
)

const (
	// busName of the EventingBackend, and busStream that the hub makes for it by default.
	busName   = "bus"
	busStream = "capstan"
	// samples of events that are shown.
	samples = 5
)

// bus is a NATS server with JetStream, to which the hub publishes.
type bus struct{ server *nats.Server }

func startBus(down *teardown) (*bus, error) {
	folder, err := os.MkdirTemp("", "capstan-nats-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for JetStream: %w", err)
	}
	down.add(func() error { return os.RemoveAll(folder) })
	server, err := nats.Start(folder)
	if err != nil {
		return nil, err
	}
	down.add(func() error { server.Stop(); return nil })
	return &bus{server}, nil
}

// declareBus declares the EventingBackend of Kyma's proposal; its URL is the hub's default.
func declareBus(ctx context.Context, m *management) error {
	backend := &eventingv1.EventingBackend{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: hubNamespace, Name: busName, Labels: map[string]string{eventingv1.BackendLabel: eventingv1.BackendLabelValue},
		},
		Spec: eventingv1.EventingBackendSpec{Type: "nats", Config: []eventingv1.ConfigEntry{
			{"maxInFlightMessages": {Raw: []byte("10")}},
		}},
	}
	if err := m.Create(ctx, backend); err != nil {
		return fmt.Errorf("declaring EventingBackend %s: %w", busName, err)
	}
	return nil
}

// busChapter compares the events in JetStream with what happened.
type busChapter struct {
	management *management
	promotions promotions
	bus        *bus
}

func (c busChapter) play(ctx context.Context, s *stage) error {
	if err := s.await(ctx, "EventingBackend "+busName+" is ready", func(ctx context.Context) error {
		backend := &eventingv1.EventingBackend{}
		if err := c.management.Get(ctx, client.ObjectKey{Namespace: hubNamespace, Name: busName}, backend); err != nil {
			return err
		}
		if !ptr.Deref(backend.Status.EventingReady, false) {
			return fmt.Errorf("its conditions are %+v", backend.Status.Conditions)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := s.await(ctx, "JetStream has the lifecycle of every Promotion, each event once and in order", c.hasPromotions); err != nil {
		return err
	}
	if err := s.await(ctx, "and prod's outage and recovery", func(ctx context.Context) error {
		return c.bus.hasOutage(ctx, "clusters/Cluster/"+fleetNamespace+"/"+prod)
	}); err != nil {
		return err
	}
	if err := s.await(ctx, "and the annotated node groups", func(ctx context.Context) error {
		return c.bus.has(ctx, event.MachineDeploymentAnnotated)
	}); err != nil {
		return err
	}
	if err := s.await(ctx, "and the notice for the spot instance", func(ctx context.Context) error {
		return c.bus.has(ctx, event.InstanceSpotInterruption)
	}); err != nil {
		return err
	}
	all, err := c.bus.events(ctx)
	if err != nil {
		return err
	}
	for i := range all[:min(samples, len(all))] {
		s.note("%s  %s  %s", all[i].Time().Format("15:04:05"), all[i].Type(), all[i].Subject())
	}
	s.note("… %d events in stream %s of %s", len(all), busStream, c.bus.server.URL())
	return nil
}

// events in JetStream, the oldest first.
func (b *bus) events(ctx context.Context) ([]ce.Event, error) {
	messages, err := b.server.Messages(ctx, busStream)
	if err != nil {
		return nil, err
	}
	all := make([]ce.Event, len(messages))
	for i, m := range messages {
		if err := all[i].UnmarshalJSON(m.Data); err != nil {
			return nil, fmt.Errorf("message %d is not a CloudEvent: %w", i, err)
		}
	}
	return all, nil
}

func (c busChapter) hasPromotions(ctx context.Context) error {
	every, err := c.promotions.list(ctx)
	if err != nil {
		return err
	}
	published, err := c.bus.byPromotion(ctx)
	if err != nil {
		return err
	}
	if len(every) == 0 {
		return errors.New("there is no Promotion")
	}
	for i := range every {
		if want, got := happened(&every[i]), published[every[i].Name]; !slices.Equal(want, got) {
			return fmt.Errorf("Promotion %s: JetStream has %v, not %v", every[i].Name, got, want)
		}
	}
	return nil
}

// happened returns the kinds of events that a Promotion must have.
func happened(p *capstanv1.Promotion) []event.Kind {
	var kinds []event.Kind
	for _, e := range (event.Hub{}).Promotions(p) {
		kinds = append(kinds, event.KindOf(e))
	}
	return kinds
}

// byPromotion returns the kinds of the events of each Promotion, in order.
func (b *bus) byPromotion(ctx context.Context) (map[string][]event.Kind, error) {
	all, err := b.events(ctx)
	if err != nil {
		return nil, err
	}
	published := map[string][]event.Kind{}
	for _, e := range all {
		if !strings.HasPrefix(string(event.KindOf(e)), "promotion.") {
			continue
		}
		var data event.Promotion
		if err := e.DataAs(&data); err != nil {
			return nil, fmt.Errorf("the data of event %s: %w", e.ID(), err)
		}
		published[data.Promotion] = append(published[data.Promotion], event.KindOf(e))
	}
	return published, nil
}

// hasOutage: there are events of the cluster's outage and recovery. A state is published when
// it lasts (publisher.DefaultDwell): a short outage may have its first event only.
func (b *bus) hasOutage(ctx context.Context, subject string) error {
	all, err := b.events(ctx)
	if err != nil {
		return err
	}
	var got []event.Kind
	out := false
	for _, e := range all {
		if e.Subject() != subject {
			continue
		}
		kind := event.KindOf(e)
		got = append(got, kind)
		switch kind { //nolint:exhaustive // The others are not of an outage.
		case event.ClusterDegraded, event.ClusterUnreachable:
			out = true
		case event.ClusterRecovered:
			if out {
				return nil
			}
		}
	}
	return fmt.Errorf("there is no outage among the events of %s: %v", subject, got)
}

// has at least one event of the kind.
func (b *bus) has(ctx context.Context, kind event.Kind) error {
	all, err := b.events(ctx)
	if err == nil && !slices.ContainsFunc(all, func(e ce.Event) bool { return event.KindOf(e) == kind }) {
		err = fmt.Errorf("there is no %s among %d events", kind, len(all))
	}
	return err
}

// hasOfCluster: there is an event of the kind about the cluster.
func (b *bus) hasOfCluster(ctx context.Context, name string, kind event.Kind) error {
	all, err := b.events(ctx)
	if err != nil {
		return err
	}
	subject := "clusters/Cluster/" + fleetNamespace + "/" + name
	if !slices.ContainsFunc(all, func(e ce.Event) bool { return e.Subject() == subject && event.KindOf(e) == kind }) {
		return fmt.Errorf("there is no %s of %s among %d events", kind, subject, len(all))
	}
	return nil
}
