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
)

const (
	// webhookName is that of config/webhook: of the Service and of the Secret; and
	// webhookConfiguration that of both webhook configurations.
	webhookName          = "capstan-hub-webhook"
	webhookConfiguration = "capstan-eventingbackends"
)

// listeners are the addresses at which the hub is to listen, on loopback.
type listeners struct{ metrics, health, hook, api, webhooks, dashboard string }

func newListeners(ctx context.Context) (listeners, error) {
	var l listeners
	for _, address := range []*string{&l.metrics, &l.health, &l.hook, &l.api, &l.webhooks, &l.dashboard} {
		var err error
		if *address, err = freeAddress(ctx); err != nil {
			return listeners{}, err
		}
	}
	return l, nil
}

// startHub starts the team's receiver of events and the hub that posts to it,
// and waits until the hub is ready. It has what the Deployment gives it.
func (f *Fleet) startHub(ctx context.Context, logger logr.Logger, parts *parts) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", loopback)
	if err != nil {
		return fmt.Errorf("listening for events: %w", err)
	}
	f.team = newTeam(f.act)
	server := &http.Server{Handler: f.team, ReadHeaderTimeout: receiverTimeout}
	parts.start("the receiver of events", func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})

	at, err := newListeners(ctx)
	if err != nil {
		return err
	}
	f.metricsURL, f.healthURL = "http://"+at.metrics+"/metrics", "http://"+at.health+"/readyz"
	f.dashboardURL, f.apiURL = "http://"+at.dashboard+"/", "http://"+at.api+"/"
	if err := f.routeWebhooks(ctx, at.webhooks); err != nil {
		return err
	}
	config, err := f.hubConfig(ctx)
	if err != nil {
		return err
	}
	shown := hub.Dashboard{BindAddress: at.dashboard, Auth: dashboard.AuthNone}
	if f.signsIn() {
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
		AWS:                     f.config,
		Annotator:               hub.Annotator{AWS: f.config},
		Eventing: hub.Eventing{
			Name: "playground", NATSURL: f.bus.URL(), AllowLoopback: true, APIBindAddress: at.api,
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
	return eventually(ctx, func(ctx context.Context) error { return answersOK(ctx, f.healthURL) })
}

// aliasService has the Service of the webhooks lead to this machine: there is no network
// of pods, and the API server asks DNS for what a Service of this type names.
func (f *Fleet) aliasService(ctx context.Context) error {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: webhookName}}
	if err := f.client.Patch(ctx, service, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"type":"ExternalName","externalName":"localhost"}}`))); err != nil {
		return fmt.Errorf("leading the webhooks' Service to this machine: %w", err)
	}
	return nil
}

// routeWebhooks to the port at which the hub serves them. Until then nobody answers, and
// objects are admitted as they are.
func (f *Fleet) routeWebhooks(ctx context.Context, address string) error {
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
		if err := f.client.Patch(ctx, configuration, patch); err != nil {
			return fmt.Errorf("leading the webhooks to %s: %w", address, err)
		}
	}
	return nil
}

// freeAddress is a loopback address that nothing listened on a moment ago.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", loopback)
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
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
