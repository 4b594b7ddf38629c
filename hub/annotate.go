package hub

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/annotator"
	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/hub/annotator/publication"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/index"
)

const (
	// AnnotatorLeaseName is the name of the lease of a standalone annotator.
	AnnotatorLeaseName = "capa-annotator-leader"
	// AnnotatorLease is how long that lease is held without renewal: the default of
	// capa-annotator.
	AnnotatorLease = 120 * time.Second

	// annotatorName is the reporter of the Events of a standalone annotator.
	annotatorName = "capa-annotator"
)

// Annotator is the part of the Options that says how node groups are annotated.
type Annotator struct {
	// AWS is the configuration of the EC2 client; nil disables annotations.
	AWS *awsconfig.Config
	// Families of annotations; all if nil.
	Families []annotation.Family
	// Pods is how the pods of a node are counted if a Cluster does not define it.
	Pods capacity.PodsPolicy
	// DefaultRegion of AWS if no object names one; none if empty.
	DefaultRegion string
	// Namespace in which the state of the catalogue is published (package publication); it is not
	// published if empty.
	Namespace string
	// Timings of the catalogue that are not zero replace the defaults.
	Timings catalogue.Timings
}

// Alone is an annotator without the other parts of the hub, for the management cluster only.
type Alone struct{ manager manager.Manager }

// NewAlone wires a standalone annotator. It uses only the Options of the process, of the
// lease, and Annotator.
func NewAlone(o Options) (*Alone, error) {
	o.defaults()
	mgr, err := newManager(o, AnnotatorLeaseName, nil)
	if err != nil {
		return nil, err
	}
	management, err := newStack(mgr, o, stackOptions{managementOnly: true, readings: []reading{annotator.Kind}, index: index.New()})
	if err != nil {
		return nil, err
	}
	if err := addAnnotator(management, o, annotatorName, nil); err != nil {
		return nil, fmt.Errorf("wiring the annotator: %w", err)
	}
	if err := addDiagnostics(mgr, management, o); err != nil {
		return nil, fmt.Errorf("wiring diagnostics: %w", err)
	}
	return &Alone{mgr}, nil
}

// Start runs the annotator until the context ends or the lease is lost, which is an
// error. It is started once.
func (a *Alone) Start(ctx context.Context) error { return a.manager.Start(ctx) }

// addAnnotator annotates node groups, on the leader, if AWS is configured. name is the
// reporter of its Events: the dashboard shows those of the hub. notify, if not nil, is called
// with each outcome.
func addAnnotator(s *stack, o Options, name string, notify func(annotator.Report)) error {
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
	local := s.manager.GetLocalManager()
	if err := local.Add(types); err != nil {
		return fmt.Errorf("wiring the catalogue: %w", err)
	}
	if o.Annotator.Namespace != "" {
		if err := local.Add(&publication.Publisher{
			State: types.State, Client: local.GetClient(), Namespace: o.Annotator.Namespace, Name: publication.NameOf(o.hubName()), Clock: o.Clock, Logger: log.WithName("publication"),
		}); err != nil {
			return fmt.Errorf("wiring the publication of the catalogue: %w", err)
		}
	}
	return annotator.SetupWithManager(s.manager, annotator.Options{
		Watchers:      s.watchers,
		Catalogue:     types,
		Recorder:      local.GetEventRecorder(name),
		Families:      o.Annotator.Families,
		Pods:          o.Annotator.Pods,
		DefaultRegion: o.Annotator.DefaultRegion,
		Notify:        notify,
		Registerer:    o.Registerer,
		Clock:         o.Clock,
		Logger:        log,
	})
}
