package hub

import (
	"strings"

	"k8s.io/utils/clock"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/annotator"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/outbox"
	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// telling publishes events about facts that no object of the hub stores. They are published
// once, and are lost if the process ends while they are in a queue.
type telling struct {
	publisher outbox.Publisher
	hub       event.Hub
	clock     clock.PassiveClock
}

// instance publishes that an instance of AWS, or a group, was labelled.
func (t telling) instance(n instancestate.Applied) {
	data := event.Instance{
		InstanceID: n.Fact.InstanceID, AutoScalingGroup: n.Fact.GroupName, State: stateOf(n), EventID: n.Fact.ID,
		Region: n.Region, Account: n.Account, LabelKey: n.LabelKey,
		Object: &event.Object{Cluster: n.Object.Cluster, Kind: n.Object.Kind.Kind, Namespace: n.Object.Namespace, Name: n.Object.Name},
	}
	t.publisher.Publish(t.hub.Instances(instanceNews(n.Fact), data, n.Fact.Time), nil)
}

// stateOf returns the state for the event of a fact. The end of maintenance is no state: the label shows the one that is
// left, if there is one.
func stateOf(n instancestate.Applied) string {
	if n.Fact.Over {
		return n.Label
	}
	return n.Fact.Label
}

// instanceNews returns the kind of event for a fact.
func instanceNews(f message.Fact) event.Kind {
	if f.Over {
		return event.InstanceStateChanged
	}
	switch f.Kind { //nolint:exhaustive // The others are about a state.
	case message.SpotInterruption, message.CapacityReservation:
		return event.InstanceSpotInterruption
	case message.GroupLaunchHook, message.GroupTerminateHook:
		return event.InstanceLifecycleHook
	case message.ScheduledChange:
		return event.InstanceScheduledChange
	}
	return event.InstanceStateChanged
}

// nodeGroup publishes that a node group was annotated, or cannot be.
func (t telling) nodeGroup(n annotator.Report) {
	t.publisher.Publish(t.hub.MachineDeployments(n.UID, n.ResourceVersion, event.MachineDeployment{
		Cluster: clusterOf(n.Cluster), Kind: n.Kind, Namespace: n.Namespace, Name: n.Name,
		InstanceType: strings.Join(n.InstanceTypes, ","), CPU: n.Node.VCPU, MemoryMiB: n.Node.MemoryMiB, GPU: n.Node.GPUs,
		Architecture: n.Architecture, Reason: n.Reason, Message: n.Message,
	}, t.clock.Now()), nil)
}

// clusterOf returns the cluster of an event; empty for the management cluster.
func clusterOf(name multicluster.ClusterName) string {
	if name == clusters.LocalName {
		return ""
	}
	return string(name)
}
