package hub

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-hub/capstan/hub/annotator"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

// reading returns how a part of the hub reads a kind; false for kinds that it does not read.
type reading func(schema.GroupKind) (watchers.Kind, bool)

// readings returns the readings of the parts that the options enable.
func readings(o Options) []reading {
	var all []reading
	if o.Annotator.AWS != nil {
		all = append(all, annotator.Kind)
	}
	if o.AWS != nil {
		all = append(all, instancestate.Kind)
	}
	if o.Dashboard.served() {
		all = append(all, dashboard.Kind)
	}
	return all
}

// kinds returns how the watchers read a kind. One watch serves every part that reads the
// kind, so it keeps what any of them needs. A kind that no part reads is an application.
func kinds(parts []reading) func(schema.GroupKind) watchers.Kind {
	return func(kind schema.GroupKind) watchers.Kind {
		var all *watchers.Kind
		for _, part := range parts {
			read, is := part(kind)
			switch {
			case is && all == nil:
				all = &read
			case is:
				both := watchers.Both(*all, read)
				all = &both
			}
		}
		if all == nil {
			return apps.Kind(kind)
		}
		return *all
	}
}
