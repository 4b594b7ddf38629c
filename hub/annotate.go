package hub

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/annotator"
	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/watchers"
)

const (
	// AnnotatorLeaseName is the name of the lease of an annotator alone.
	AnnotatorLeaseName = "capa-annotator-leader"
	// AnnotatorLease is how long that is held without renewal: the seed's default.
	AnnotatorLease = 120 * time.Second

	// annotatorName stands in Events.
	annotatorName = "capa-annotator"
)

// Annotator is the part of the Options that says how node groups are annotated.
type Annotator struct {
	// AWS is how EC2 is asked; nil for no annotations.
	AWS *awsconfig.Config
	// Families of annotations; all when nil.
	Families []annotation.Family
	// Pods is how the pods of a node are counted where a Cluster does not say.
	Pods capacity.PodsPolicy
	// DefaultRegion of AWS where nothing names one; none when empty.
	DefaultRegion string
	// Timings of the catalogue replace the defaults where not zero.
	Timings catalogue.Timings
}

// Alone is an annotator without the rest of the hub, for the management cluster alone.
type Alone struct{ manager manager.Manager }

// NewAlone wires an annotator alone. Of the Options it heeds those of the process, of
// the lease, and Annotator.
func NewAlone(o Options) (*Alone, error) {
	o.defaults()
	mgr, err := newManager(o, AnnotatorLeaseName)
	if err != nil {
		return nil, err
	}
	connections, err := clusters.New(clusters.Options{
		Local: mgr.GetConfig(), Namespace: o.Namespace, LocalOnly: true,
		Registerer: o.Registerer, Timings: o.ClusterTimings, Clock: o.Clock, Logger: o.Logger.WithName("clusters"),
	})
	if err != nil {
		return nil, fmt.Errorf("wiring clusters: %w", err)
	}
	watching := watchers.New(watchers.Options{
		Clusters: connections, Index: index.New(), Kinds: kinds, SourceNamespace: o.Namespace,
		Registerer: o.Registerer, Timings: o.WatcherTimings, Clock: o.Clock, Logger: o.Logger.WithName("watchers"),
	})
	connections.AddListener(watching)
	multi, err := mcmanager.WithMultiCluster(mgr, connections)
	if err != nil {
		return nil, fmt.Errorf("wiring the multicluster manager: %w", err)
	}
	for _, runnable := range []manager.Runnable{connections, watching} {
		if err := mgr.Add(runnable); err != nil {
			return nil, fmt.Errorf("wiring %T: %w", runnable, err)
		}
	}
	if err := addAnnotator(multi, watching, o, nil); err != nil {
		return nil, fmt.Errorf("wiring the annotator: %w", err)
	}
	return &Alone{mgr}, nil
}

// Start runs the annotator until the context ends or the lease is lost, which is an
// error. It is started once.
func (a *Alone) Start(ctx context.Context) error { return a.manager.Start(ctx) }

// addAnnotator annotates node groups, if there is an AWS to ask; tell, if not nil, is told
// of them.
func addAnnotator(mgr mcmanager.Manager, watching *watchers.Watcher, o Options, tell func(annotator.News)) error {
	if o.Annotator.AWS == nil {
		return nil
	}
	log := o.Logger.WithName("annotator")
	types, err := catalogue.New(catalogue.Options{
		AWS: o.Annotator.AWS, Registerer: o.Registerer, Timings: o.Annotator.Timings, Clock: o.Clock, Logger: log.WithName("catalogue"),
	})
	if err != nil {
		return fmt.Errorf("wiring the catalogue: %w", err)
	}
	local := mgr.GetLocalManager()
	if err := local.Add(types); err != nil {
		return fmt.Errorf("wiring the catalogue: %w", err)
	}
	return annotator.SetupWithManager(mgr, annotator.Options{
		Watchers:      watching,
		Catalogue:     types,
		Recorder:      local.GetEventRecorder(annotatorName),
		Families:      o.Annotator.Families,
		Pods:          o.Annotator.Pods,
		DefaultRegion: o.Annotator.DefaultRegion,
		Tell:          tell,
		Registerer:    o.Registerer,
		Clock:         o.Clock,
		Logger:        log,
	})
}
