package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/playground/ports"
)

const (
	// webhookName is that of config/webhook: of the Service and of the Secret; and
	// webhookConfiguration that of both webhook configurations.
	webhookName          = "capstan-hub-webhook"
	webhookConfiguration = "capstan-eventingbackends"
)

// listeners are the addresses at which the hub is to listen, on loopback.
type listeners struct{ metrics, health, hook, api, webhooks, dashboard string }

func newListeners() (listeners, error) {
	var l listeners
	for _, address := range []*string{&l.metrics, &l.health, &l.hook, &l.api, &l.webhooks, &l.dashboard} {
		var err error
		if *address, err = ports.Free(); err != nil {
			return listeners{}, err
		}
	}
	return l, nil
}

// addresses of the running hub, as URLs.
type addresses struct{ metrics, health, hook, api, dashboard string }

// startHub starts the team's receiver of events and the hub that posts to it, and waits until
// the hub is ready. Its options are those of the Deployment.
func (f *Fleet) startHub(ctx context.Context, logger logr.Logger, parts *parts) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", loopback)
	if err != nil {
		return fmt.Errorf("listening for events: %w", err)
	}
	f.team = newTeam(func(ctx context.Context, n notification) error {
		if n.Pipeline == edge {
			return f.edge.act(n)
		}
		return f.workloads.act(ctx, n)
	})
	server := &http.Server{Handler: f.team, ReadHeaderTimeout: receiverTimeout}
	parts.start("the receiver of events", func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})

	at, err := newListeners()
	if err != nil {
		return err
	}
	f.hub = addresses{
		metrics: "http://" + at.metrics + "/metrics", hook: "http://" + at.hook, health: "http://" + at.health + "/readyz",
		dashboard: "http://" + at.dashboard + "/", api: "http://" + at.api + "/",
	}
	if err := routeWebhooks(ctx, f.management, at.webhooks); err != nil {
		return err
	}
	config, err := hubConfig(ctx, f.management)
	if err != nil {
		return err
	}
	shown := hub.Dashboard{BindAddress: at.dashboard, Auth: dashboard.AuthNone}
	if f.signIn {
		shown.Auth = dashboard.AuthToken
	}
	h, err := hub.New(hub.Options{
		Config:                  config,
		MetricsBindAddress:      at.metrics,
		HealthAddress:           at.health,
		Hook:                    hub.Hook{BindAddress: at.hook},
		Dashboard:               shown,
		EventsAddress:           "http://" + listener.Addr().String() + "/",
		LeaderElect:             true,
		LeaderElectionNamespace: hubNamespace,
		AllowLoopback:           true,
		AllowLoopbackGit:        true,
		AWS:                     f.cloud.config,
		Annotator:               hub.Annotator{AWS: f.cloud.config, Namespace: hubNamespace},
		Eventing: hub.Eventing{
			Name: "playground", NATSURL: f.bus.server.URL(), AllowLoopback: true, APIBindAddress: at.api,
			SQSSourceNamespaces: []string{hubNamespace}, SQSSinkNamespaces: []string{hubNamespace},
			Webhooks: hub.Webhooks{BindAddress: at.webhooks, Secret: types.NamespacedName{Namespace: hubNamespace, Name: webhookName}},
		},
		ClusterTimings: clusterTimings,
		WatcherTimings: watcherTimings,
		Logger:         logger,
	})
	if err != nil {
		return err
	}
	parts.start("the hub", h.Start)
	return eventually(ctx, func(ctx context.Context) error { return answersOK(ctx, f.hub.health) })
}

// aliasService makes the Service of the webhooks lead to this machine: there is no network of
// pods, and the API server resolves the name in a Service of this type by DNS.
func aliasService(ctx context.Context, m *management) error {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: webhookName}}
	if err := m.Patch(ctx, service, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"type":"ExternalName","externalName":"localhost"}}`))); err != nil {
		return fmt.Errorf("changing the webhooks' Service: %w", err)
	}
	return nil
}

// routeWebhooks sets the port of the hub's webhooks. Until then they do not answer, and the
// API server admits objects unchanged.
func routeWebhooks(ctx context.Context, m *management, address string) error {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.JSONPatchType, fmt.Appendf(nil, `[{"op":"add","path":"/webhooks/0/clientConfig/service/port","value":%d}]`, port))
	name := metav1.ObjectMeta{Name: webhookConfiguration}
	for _, configuration := range []client.Object{
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: name}, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: name},
	} {
		if err := m.Patch(ctx, configuration, patch); err != nil {
			return fmt.Errorf("setting the webhooks' address to %s: %w", address, err)
		}
	}
	return nil
}

func answersOK(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}
