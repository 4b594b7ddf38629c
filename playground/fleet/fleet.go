package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/flux"
	"github.com/capstan-hub/capstan/playground/git"
	"github.com/capstan-hub/capstan/playground/nats"
)

// Environments of both Pipelines, in order; each has a cluster of its name.
var Environments = []string{dev, staging, prod}

const dev, staging, prod = "dev", "staging", "prod"

// Options of a fleet.
type Options struct {
	// Dir is where kubeconfigs and the hub's log are written. What Run writes it
	// removes, Dir as well if Run made it.
	Dir string
	// Out is told what happens.
	Out io.Writer
	// Verbose shows the hub's log on Out, too.
	Verbose bool
	// Installation is what is applied to the management cluster to install the hub, as
	// YAML; the manifests of config that an installation has when empty. The hub runs
	// with the rights that it gives, and no others, and one signs in to its dashboard.
	Installation []byte
	// AuditLog of the management cluster; none when empty.
	AuditLog string
}

// Fleet is a running fleet.
type Fleet struct {
	out   io.Writer
	files *files
	// installation and auditLog are the Options'.
	installation []byte
	auditLog     string

	management *controlplane.ControlPlane
	// client is an administrator's of the management cluster.
	client client.Client
	// workloads by the name of their environment.
	workloads map[string]*workload
	team      *team
	// gitea has the repository that billing is promoted in; the hub is robot there.
	gitea      *git.Server
	repository *git.Repository
	robot      git.Account
	// aws is played; config is how the hub calls it, and sqs how EventBridge does. queues
	// are what is in it.
	aws    *aws.Server
	config *awsconfig.Config
	sqs    *sdk.Client
	queues *sqs.Service
	// bus is what events are told to.
	bus *nats.Server
	// metricsURL, healthURL, apiURL and dashboardURL of the hub.
	metricsURL, healthURL, apiURL, dashboardURL string
}

// workload is one workload cluster.
type workload struct {
	name  string
	plane *controlplane.ControlPlane
	// proxy is how the hub reaches it; everything else goes straight.
	proxy  *controlplane.Proxy
	client client.Client
}

// release of a Pipeline's application in the cluster.
func (w *workload) release(app string) flux.Release {
	return flux.Release{Client: w.client, Key: client.ObjectKey{Namespace: app, Name: app}}
}

// Run brings a fleet up, calls use, and takes the fleet down.
func Run(ctx context.Context, o Options, use func(context.Context, *Fleet) error) (err error) {
	var down teardown
	defer func() {
		say(o.Out, "\nStopping.")
		err = errors.Join(err, down.all())
	}()

	f := &Fleet{out: o.Out, workloads: map[string]*workload{}, installation: o.Installation, auditLog: o.AuditLog}
	f.files, err = newFiles(o.Dir, &down)
	if err != nil {
		return err
	}
	asked := ctx
	ctx, breakDown := context.WithCancelCause(asked)
	defer breakDown(nil)

	// Before anything starts that logs.
	logger := f.newLogger(o)
	err = f.up(ctx, logger, &parts{broken: breakDown, down: &down})
	if err == nil {
		err = use(ctx, f)
	}
	// That the caller ended it needs no explanation.
	if err == nil || asked.Err() != nil {
		return err
	}
	f.tellLog()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// up brings everything up, in order.
func (f *Fleet) up(ctx context.Context, logger logr.Logger, parts *parts) error {
	started := time.Now()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"starting 4 control planes, 2 at a time", func(ctx context.Context) error { return f.startPlanes(ctx, parts.down) }},
		{"starting Gitea", func(ctx context.Context) error { return f.startGitea(ctx, parts) }},
		{"starting EC2 and SQS", func(ctx context.Context) error { return f.startAWS(ctx, parts.down) }},
		{"starting NATS", func(context.Context) error { return f.startBus(parts.down) }},
		{"declaring clusters, credentials, policies and applications", f.declare},
		{"declaring an event backend", f.declareBus},
		{"playing Flux in the workload clusters", func(context.Context) error { return f.startFlux(parts) }},
		{"deploying " + firstRevision + " everywhere", func(ctx context.Context) error { return f.deployAll(ctx, firstRevision) }},
		{"starting the hub", func(ctx context.Context) error { return f.startHub(ctx, logger, parts) }},
	} {
		say(f.out, "%6s  %s", seconds(time.Since(started)), step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	say(f.out, "%6s  up", seconds(time.Since(started)))
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// teardown is what is to be undone, last first.
type teardown []func() error

func (t *teardown) add(undo func() error) { *t = append(*t, undo) }

func (t *teardown) all() error {
	var errs []error
	for i := len(*t) - 1; i >= 0; i-- {
		errs = append(errs, (*t)[i]())
	}
	*t = nil
	return errors.Join(errs...)
}

// parts are what runs inside this process: each has a goroutine and an end in
// the teardown. One that ends by itself breaks the fleet.
type parts struct {
	broken context.CancelCauseFunc
	down   *teardown
}

func (p *parts) start(name string, run func(context.Context) error) {
	// The end comes from the teardown, in its order, and not from whatever ends
	// the caller.
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := run(ctx)
		if ctx.Err() == nil {
			p.broken(fmt.Errorf("%s ended by itself: %w", name, errors.Join(err, errEnded)))
		}
		ended <- err
	}()
	p.down.add(func() error {
		stop()
		if err := <-ended; err != nil {
			return fmt.Errorf("stopping %s: %w", name, err)
		}
		return nil
	})
}

var errEnded = errors.New("it was to run until the fleet is taken down")
