// The program floor does the least that any program needs for what the benchmarks measure of the
// hub: a bare client-go informer on the HelmReleases of each cluster, with the hub's decoder, and one
// PATCH of a Pipeline's status when each of its targets is seen or failed, and after each later
// change; changes during a PATCH are in the next one. Its figures are printed next to the hub's, of
// the same run: what the hub takes beyond them is what it could save.
//
// It is no hub: it reads the Pipelines and the Secrets once, retries nothing but what client-go does,
// has no lease, no checks of clusters, no ClusterConnections, Events, Promotions or dashboard, and
// accepts any size of what clusters send. It runs until it is terminated, and serves the metrics and
// profiles of its process.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
	"github.com/capstan-hub/capstan/watchers/decode"
)

// writers is how many statuses are written at a time, as in the hub.
const writers = 8

// applications is what is watched.
var applications = schema.GroupVersionResource{Group: "helm.toolkit.fluxcd.io", Version: "v2", Resource: "helmreleases"}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the management cluster's")
	namespace := flag.String("namespace", "", "that of the Pipelines and of the clusters' Secrets")
	address := flag.String("address", "", "of metrics and profiles, such as 127.0.0.1:8080")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	klog.SetLogger(logr.Discard())
	if err := run(ctx, *kubeconfig, *namespace, *address); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, namespace, address string) error {
	served := serve(ctx, address)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.DisableCompression = -1, true
	known := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(known), pipelinesv1.AddToScheme(known)); err != nil {
		return err
	}
	management, err := client.New(config, client.Options{Scheme: known})
	if err != nil {
		return err
	}
	f, err := newFloor(ctx, management, namespace)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	for range writers {
		running.Go(func() { f.write(ctx) })
	}
	var secrets corev1.SecretList
	if err := management.List(ctx, &secrets, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range secrets.Items {
		name, is := strings.CutSuffix(secrets.Items[i].Name, "-kubeconfig")
		if !is || f.places[name] == nil {
			continue
		}
		informer, err := f.informer(name, secrets.Items[i].Data["value"])
		if err != nil {
			return err
		}
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	secrets.Items = nil
	running.Wait()
	return <-served
}

// serve serves the metrics and profiles of the process until the context ends.
func serve(ctx context.Context, address string) <-chan error {
	routes := http.NewServeMux()
	routes.Handle("/metrics", promhttp.Handler())
	routes.HandleFunc("/debug/pprof/", pprof.Index)
	routes.HandleFunc("/debug/pprof/profile", pprof.Profile)
	server := &http.Server{Addr: address, Handler: routes, ReadHeaderTimeout: time.Second}
	ended := make(chan error, 1)
	go func() {
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			ended <- err
			return
		}
		ended <- nil
	}()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return ended
}

// place is that of an application in the status of a Pipeline.
type place struct {
	pipeline *pipeline
	number   int
}

// pipeline is one with a single environment.
type pipeline struct {
	name, environment string

	mu          sync.Mutex
	lockedState struct {
		targets []pipelinesv1.TargetStatus
		// missing targets have not been observed.
		missing int
		// queued: it waits for a writer, or is being written. changed: since its last write began.
		queued, changed bool
	}
}

// floor follows the applications of Pipelines.
type floor struct {
	management client.Client
	namespace  string
	// places: cluster → application → where it is shown.
	places map[string]map[types.NamespacedName][]place
	// due are the Pipelines to write; it has a place for each of them.
	due chan *pipeline
}

func newFloor(ctx context.Context, management client.Client, namespace string) (*floor, error) {
	var all pipelinesv1.PipelineList
	if err := management.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	f := &floor{management: management, namespace: namespace, places: map[string]map[types.NamespacedName][]place{}, due: make(chan *pipeline, len(all.Items))}
	for i := range all.Items {
		spec := &all.Items[i].Spec
		p := &pipeline{name: all.Items[i].Name, environment: spec.Environments[0].Name}
		for n, target := range spec.Environments[0].Targets {
			cluster, app := target.ClusterRef.Name, types.NamespacedName{Namespace: target.Namespace, Name: spec.AppRef.Name}
			if f.places[cluster] == nil {
				f.places[cluster] = map[types.NamespacedName][]place{}
			}
			f.places[cluster][app] = append(f.places[cluster][app], place{p, n})
			p.lockedState.targets = append(p.lockedState.targets, pipelinesv1.TargetStatus{ClusterAppRef: pipelinesv1.ClusterAppReference{
				LocalAppReference: spec.AppRef, ClusterRef: target.ClusterRef,
			}})
		}
		p.lockedState.missing = len(p.lockedState.targets)
	}
	return f, nil
}

// informer of the applications of a cluster.
func (f *floor) informer(cluster string, kubeconfig []byte) (cache.Controller, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	version := applications.GroupVersion()
	config.QPS, config.DisableCompression = -1, true
	config.GroupVersion, config.APIPath, config.NegotiatedSerializer = &version, "/apis", scheme.Codecs.WithoutConversion()
	calls, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	places, kind := f.places[cluster], apps.Kind(apps.HelmRelease)
	keep := decode.FieldsOf(kind.Reads)
	accept := func(event watch.EventType, u *unstructured.Unstructured, _ int) (runtime.Object, error) {
		if event == watch.Bookmark {
			return u, nil
		}
		if places[types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}] == nil {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
			}}, nil
		}
		return kind.Reduce(u)
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return nil, errors.New("the cluster does not stream lists")
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			body, err := calls.Get().Resource(applications.Resource).VersionedParams(&o, metav1.ParameterCodec).
				SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
			if err != nil {
				f.fail(cluster, err)
				return nil, err
			}
			return decode.NewWatch(body, keep, accept, func(error) {}), nil
		},
	}
	changed := func(o any) {
		if app, is := o.(*apps.App); is {
			f.show(places[types.NamespacedName{Namespace: app.Namespace, Name: app.Name}], app, kind)
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source,
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) }},
	})
	return controller, nil
}

// show puts an application into the Pipelines that have it, and queues those that are complete.
func (f *floor) show(places []place, app *apps.App, kind watchers.Kind) {
	seen, now := kind.Observe(app), metav1.Now()
	for _, at := range places {
		if at.pipeline.set(at.number, func(t *pipelinesv1.TargetStatus) {
			t.Revision, t.Ready, t.ObservedTime, t.Error = seen.Revision, seen.Ready, &now, ""
		}) {
			f.due <- at.pipeline
		}
	}
}

// fail puts into the Pipelines that a cluster cannot be read. Targets that were seen stay.
func (f *floor) fail(cluster string, cause error) {
	for _, all := range f.places[cluster] {
		for _, at := range all {
			if at.pipeline.set(at.number, func(t *pipelinesv1.TargetStatus) { t.Error = cause.Error() }) {
				f.due <- at.pipeline
			}
		}
	}
}

// set sets a target, and returns whether the Pipeline has to be queued.
func (p *pipeline) set(number int, to func(*pipelinesv1.TargetStatus)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.lockedState
	before := s.targets[number]
	to(&s.targets[number])
	if before == s.targets[number] {
		return false
	}
	if before.ObservedTime == nil && before.Error == "" {
		s.missing--
	}
	s.changed = true
	if s.missing > 0 || s.queued {
		return false
	}
	s.queued = true
	return true
}

// written returns whether the Pipeline has to be queued again.
func (p *pipeline) written() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lockedState.queued = p.lockedState.changed
	return p.lockedState.queued
}

// take returns the status to write as a merge patch.
func (p *pipeline) take() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lockedState.changed = false
	status := pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{
		p.environment: {Targets: p.lockedState.targets},
	}}
	return json.Marshal(map[string]any{"status": status})
}

// write writes the statuses that are due, until the context ends.
func (f *floor) write(ctx context.Context) {
	for {
		var p *pipeline
		select {
		case <-ctx.Done():
			return
		case p = <-f.due:
		}
		patch, err := p.take()
		if err == nil {
			object := &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: p.name}}
			err = f.management.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
		}
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "Pipeline %s: %v\n", p.name, err)
		}
		if p.written() {
			f.due <- p
		}
	}
}
