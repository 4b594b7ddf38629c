package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/flux"
)

// Environments of both Pipelines, in order; each has a cluster of its name.
var Environments = []string{dev, staging, prod}

const dev, staging, prod = "dev", "staging", "prod"

// Options of a fleet.
type Options struct {
	// Dir is the directory for kubeconfigs and the hub's log. Run removes what it writes
	// there, and Dir as well if Run created it.
	Dir string
	// Out receives the progress and the story.
	Out io.Writer
	// Verbose shows the hub's log on Out, too.
	Verbose bool
	// SetLoggers gets the hub's logger before anything logs, for the global loggers of libraries.
	// They have no lock: only a program sets them, and once. Nil leaves them.
	SetLoggers func(logr.Logger)
	// Installation is the YAML that installs the hub in the management cluster; the
	// manifests of config when empty. The hub runs with the rights that it gives, and no
	// others, and its dashboard requires a sign-in.
	Installation []byte
	// AuditLog is a file for the audit log of the management cluster; none when empty.
	AuditLog string
	// ProvideGitea is a program that puts Gitea into bin/. It runs next to the first
	// chapters; the first chapter that needs Gitea waits for it. When empty, Gitea must be
	// there.
	ProvideGitea string
}

// Fleet is a running fleet.
type Fleet struct {
	out        io.Writer
	files      *files
	management *management
	workloads  workloads
	edge       edgeClusters
	team       *team
	billing    *billingTeam
	cloud      *cloud
	bus        *bus
	// hub has the addresses of the running hub.
	hub addresses
	// signIn: the dashboard requires a token.
	signIn bool
}

// management is the management cluster. Its client is an administrator's.
type management struct {
	client.Client
	plane *controlplane.ControlPlane
}

// workload is one workload cluster.
type workload struct {
	name  string
	plane *controlplane.ControlPlane
	// proxy is the hub's way to the cluster; all others connect directly.
	proxy  *controlplane.Proxy
	client client.Client
}

// workloads by the name of their environment.
type workloads map[string]*workload

// release of an application in the cluster.
func (w *workload) release(app string) flux.Release {
	return flux.Release{Client: w.client, Key: client.ObjectKey{Namespace: app, Name: app}}
}

// Run starts a fleet, calls use, and stops the fleet.
func Run(ctx context.Context, o Options, use func(context.Context, *Fleet) error) (err error) {
	var down teardown
	defer func() {
		say(o.Out, "\nStopping.")
		err = errors.Join(err, down.all())
	}()

	f := &Fleet{out: o.Out, workloads: workloads{}, signIn: len(o.Installation) > 0}
	f.files, err = newFiles(o.Dir, &down)
	if err != nil {
		return err
	}
	caller := ctx
	ctx, breakDown := context.WithCancelCause(caller)
	defer breakDown(nil)

	// Before anything starts that logs.
	logger := newLogger(f.files, o)
	err = f.up(ctx, o, logger, &parts{broken: breakDown, down: &down})
	if err == nil {
		err = use(ctx, f)
	}
	// An end by the caller needs no explanation.
	if err == nil || caller.Err() != nil {
		return err
	}
	printLog(f.out, f.files)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// up starts everything but Gitea, in order.
func (f *Fleet) up(ctx context.Context, o Options, logger logr.Logger, parts *parts) error {
	started := time.Now()
	build, err := startGiteaBuild(o.ProvideGitea, f.files, parts.down)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"starting 4 control planes, 2 at a time", func(ctx context.Context) (err error) {
			f.management, err = startPlanes(ctx, f.workloads, o.AuditLog, parts.down)
			// Gitea starts later. It stops after the hub, and before the clusters.
			f.billing = newBillingTeam(f.out, f.files, f.management, f.workloads, build, parts)
			return err
		}},
		{"starting EC2 and SQS", func(ctx context.Context) (err error) { f.cloud, err = startCloud(ctx, parts.down); return err }},
		{"starting NATS", func(context.Context) (err error) { f.bus, err = startBus(parts.down); return err }},
		{"declaring clusters, credentials, policies and applications", func(ctx context.Context) error {
			return declare(ctx, f.management, f.workloads, f.files, o.Installation)
		}},
		{"declaring an event backend", func(ctx context.Context) error { return declareBus(ctx, f.management) }},
		{"simulating Flux in the workload clusters", func(context.Context) error { return startFlux(f.workloads, parts) }},
		{"deploying " + shop + " " + firstRevision + " everywhere", func(ctx context.Context) error { return deployShop(ctx, f.workloads) }},
		{"simulating 12 clusters at the edge", func(ctx context.Context) (err error) {
			f.edge, err = startEdge(ctx, f.management, parts.down)
			return err
		}},
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
