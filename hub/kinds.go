package hub

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-hub/capstan/hub/annotator"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

// kinds is how the leader's watchers read a kind: for the annotator and for instance
// state if it is one of theirs, else as an application.
func kinds(kind schema.GroupKind) watchers.Kind {
	if read, ours := readBy(kind, annotator.Kind, instancestate.Kind); ours {
		return read
	}
	return apps.Kind(kind)
}

// localKinds is how a kind of the management cluster is read on every replica: for
// instance state and for the dashboard, who demand their own kinds only.
func localKinds(kind schema.GroupKind) watchers.Kind {
	read, _ := readBy(kind, instancestate.Kind, dashboard.Kind)
	return read
}

// readBy is how a kind is read by those of two parts whose it is; false when it is
// neither's.
func readBy(kind schema.GroupKind, first, second func(schema.GroupKind) (watchers.Kind, bool)) (watchers.Kind, bool) {
	a, one := first(kind)
	b, other := second(kind)
	switch {
	case one && other:
		return watchers.Both(a, b), true
	case one:
		return a, true
	}
	return b, other
}
