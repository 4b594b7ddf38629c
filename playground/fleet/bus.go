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

// startBus starts a NATS server, whose JetStream is what people would have.
func (f *Fleet) startBus(down *teardown) error {
	folder, err := os.MkdirTemp("", "capstan-nats-")
	if err != nil {
		return fmt.Errorf("making a folder for JetStream: %w", err)
	}
	down.add(func() error { return os.RemoveAll(folder) })
	if f.bus, err = nats.Start(folder); err != nil {
		return err
	}
	down.add(func() error { f.bus.Stop(); return nil })
	return nil
}

// declareBus as the proposal's own example does: the URL is the hub's default.
func (f *Fleet) declareBus(ctx context.Context) error {
	bus := &eventingv1.EventingBackend{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: hubNamespace, Name: busName, Labels: map[string]string{eventingv1.BackendLabel: eventingv1.BackendLabelValue},
		},
		Spec: eventingv1.EventingBackendSpec{Type: "nats", Config: []eventingv1.ConfigEntry{
			{"maxInFlightMessages": {Raw: []byte("10")}},
		}},
	}
	if err := f.client.Create(ctx, bus); err != nil {
		return fmt.Errorf("declaring EventingBackend %s: %w", busName, err)
	}
	return nil
}

// busIsTold holds what JetStream has against what happened.
func (f *Fleet) busIsTold(ctx context.Context, s *stage) error {
	if err := s.await(ctx, "EventingBackend "+busName+" is ready", func(ctx context.Context) error {
		bus := &eventingv1.EventingBackend{}
		if err := f.client.Get(ctx, client.ObjectKey{Namespace: hubNamespace, Name: busName}, bus); err != nil {
			return err
		}
		if !ptr.Deref(bus.Status.EventingReady, false) {
			return fmt.Errorf("its conditions are %+v", bus.Status.Conditions)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := s.await(ctx, "JetStream has the life of every Promotion, each event once and in order", f.promotionsAreTold); err != nil {
		return err
	}
	if err := s.await(ctx, "it was told that prod went away, and came back", func(ctx context.Context) error {
		return f.toldOfOutage(ctx, "clusters/Cluster/"+fleetNamespace+"/"+prod)
	}); err != nil {
		return err
	}
	if err := s.await(ctx, "and of node groups that were annotated", func(ctx context.Context) error {
		return f.toldOf(ctx, event.MachineDeploymentAnnotated)
	}); err != nil {
		return err
	}
	if err := s.await(ctx, "and of the spot instance that is taken away", func(ctx context.Context) error {
		return f.toldOf(ctx, event.InstanceSpotInterruption)
	}); err != nil {
		return err
	}
	all, err := f.events(ctx)
	if err != nil {
		return err
	}
	for i := range all[:min(samples, len(all))] {
		s.note("%s  %s  %s", all[i].Time().Format("15:04:05"), all[i].Type(), all[i].Subject())
	}
	s.note("… %d events in stream %s of %s", len(all), busStream, f.bus.URL())
	return nil
}

// events that JetStream has, the oldest first.
func (f *Fleet) events(ctx context.Context) ([]ce.Event, error) {
	messages, err := f.bus.Messages(ctx, busStream)
	if err != nil {
		return nil, err
	}
	all := make([]ce.Event, len(messages))
	for i, m := range messages {
		if err := all[i].UnmarshalJSON(m.Data); err != nil {
			return nil, fmt.Errorf("message %d is no CloudEvent: %w", i, err)
		}
	}
	return all, nil
}

func (f *Fleet) promotionsAreTold(ctx context.Context) error {
	every, err := f.promotions(ctx)
	if err != nil {
		return err
	}
	told, err := f.toldByPromotion(ctx)
	if err != nil {
		return err
	}
	if len(every) == 0 {
		return errors.New("there is no Promotion")
	}
	for i := range every {
		if want, got := happened(&every[i]), told[every[i].Name]; !slices.Equal(want, got) {
			return fmt.Errorf("Promotion %s: JetStream has %v, not %v", every[i].Name, got, want)
		}
	}
	return nil
}

// happened to a Promotion, as kinds of events.
func happened(p *capstanv1.Promotion) []event.Kind {
	var kinds []event.Kind
	for _, e := range (event.Hub{}).Promotions(p) {
		kinds = append(kinds, event.KindOf(e))
	}
	return kinds
}

func (f *Fleet) toldByPromotion(ctx context.Context) (map[string][]event.Kind, error) {
	all, err := f.events(ctx)
	if err != nil {
		return nil, err
	}
	told := map[string][]event.Kind{}
	for _, e := range all {
		if !strings.HasPrefix(string(event.KindOf(e)), "promotion.") {
			continue
		}
		var data event.Promotion
		if err := e.DataAs(&data); err != nil {
			return nil, fmt.Errorf("the data of event %s: %w", e.ID(), err)
		}
		told[data.Promotion] = append(told[data.Promotion], event.KindOf(e))
	}
	return told, nil
}

// toldOfOutage: the cluster was well, was not, and was again. How bad it was before it
// recovered is told when it lasts (publisher.DefaultDwell): an outage of a few seconds may
// be told of by its first word alone.
func (f *Fleet) toldOfOutage(ctx context.Context, subject string) error {
	all, err := f.events(ctx)
	if err != nil {
		return err
	}
	var got []event.Kind
	away := false
	for _, e := range all {
		if e.Subject() != subject {
			continue
		}
		kind := event.KindOf(e)
		got = append(got, kind)
		switch kind { //nolint:exhaustive // The others say nothing of an outage.
		case event.ClusterDegraded, event.ClusterUnreachable:
			away = true
		case event.ClusterRecovered:
			if away {
				return nil
			}
		}
	}
	return fmt.Errorf("there is no outage in what it has of %s: %v", subject, got)
}

// toldOf one of a kind at least.
func (f *Fleet) toldOf(ctx context.Context, kind event.Kind) error {
	all, err := f.events(ctx)
	if err == nil && !slices.ContainsFunc(all, func(e ce.Event) bool { return event.KindOf(e) == kind }) {
		err = fmt.Errorf("there is no %s among %d events", kind, len(all))
	}
	return err
}
