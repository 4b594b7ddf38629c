package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

const (
	// carol signs in to the dashboard where it asks for that. She may see Pipelines and
	// Promotions of the namespace apps.
	carol = "carol"
	// maxPage of the dashboard that is read.
	maxPage = 1 << 20
)

// signsIn tells whether the dashboard asks for a token, as an installation's does. One
// that is tried on this machine does not.
func (f *Fleet) signsIn() bool { return len(f.installation) > 0 }

// peopleAsk the hub: the dashboard, discovery, and the webhook by way of the API server.
func (f *Fleet) peopleAsk(ctx context.Context, s *stage) error {
	browser, err := f.browser(ctx, s)
	if err != nil {
		return err
	}
	shown := []struct {
		page, what string
		seen       bool
	}{
		{"pipelines", "/pipelines/" + appsNamespace + "/" + shop, true},
		{"promotions", billing, true},
		{"", "/clusters/Cluster/" + fleetNamespace + "/" + prod, !f.signsIn()},
		{"backends", busName, !f.signsIn()},
	}
	for _, look := range shown {
		what := fmt.Sprintf("/%s shows %s", look.page, look.what)
		if !look.seen {
			what = fmt.Sprintf("/%s does not show %s to %s", look.page, look.what, carol)
		}
		if err := s.await(ctx, what, func(ctx context.Context) error {
			text, err := page(ctx, browser, f.dashboardURL+look.page)
			if err == nil && strings.Contains(text, look.what) != look.seen {
				err = fmt.Errorf("it is in %s: %t", f.dashboardURL+look.page, !look.seen)
			}
			return err
		}); err != nil {
			return err
		}
	}
	if err := s.expect(ctx, "discovery lists the types of event backends", func(ctx context.Context) error {
		text, err := page(ctx, http.DefaultClient, f.apiURL+"backend")
		if err != nil {
			return err
		}
		var types []string
		if err := json.Unmarshal([]byte(text), &types); err != nil || !slices.Contains(types, "nats") {
			return errors.Join(err, fmt.Errorf("it says %s", text))
		}
		s.note("%s", strings.TrimSpace(text))
		return nil
	}); err != nil {
		return err
	}
	return s.await(ctx, "who applies an EventingBackend with a mistake is warned", func(ctx context.Context) error {
		warning, err := f.mistake(ctx)
		if err == nil {
			s.note("Warning: %s", warning)
		}
		return err
	})
}

// browser that has signed in where that is asked for.
func (f *Fleet) browser(ctx context.Context, s *stage) (*http.Client, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	browser := &http.Client{Jar: jar}
	if !f.signsIn() {
		return browser, nil
	}
	token, err := f.tokenOfCarol(ctx)
	if err != nil {
		return nil, err
	}
	return browser, s.await(ctx, carol+" signs in to the dashboard with a token", func(ctx context.Context) error {
		form := url.Values{"token": {token}, "next": {"/pipelines"}}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.dashboardURL+"signin", strings.NewReader(form.Encode()))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := browser.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK || response.Request.URL.Path != "/pipelines" {
			return fmt.Errorf("%s answers %s", response.Request.URL, response.Status)
		}
		return nil
	})
}

// tokenOfCarol, as kubectl create token makes one.
func (f *Fleet) tokenOfCarol(ctx context.Context) (string, error) {
	const life = time.Hour
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: carol}}
	for _, o := range []client.Object{account, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: carol},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewer},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: appsNamespace, Name: carol}},
	}} {
		if err := f.client.Create(ctx, o); err != nil {
			return "", fmt.Errorf("declaring %s: %w", carol, err)
		}
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(life.Seconds()))}}
	if err := f.client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("requesting the token of %s: %w", carol, err)
	}
	return request.Status.Token, nil
}

func page(ctx context.Context, by *http.Client, at string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return "", err
	}
	response, err := by.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxPage))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", at, response.Status)
	}
	return string(text), err
}

// mistake in an EventingBackend, which is not kept: what kubectl would show of it.
func (f *Fleet) mistake(ctx context.Context) (string, error) {
	shown := &warnings{}
	config := rest.CopyConfig(f.management.Config())
	config.WarningHandlerWithContext = shown
	c, err := client.New(config, client.Options{Scheme: f.client.Scheme()})
	if err != nil {
		return "", err
	}
	if err := c.Create(ctx, &eventingv1.EventingBackend{
		ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: "mistaken"},
		Spec: eventingv1.EventingBackendSpec{Type: "nats", Config: []eventingv1.ConfigEntry{
			{"maxInFlightMessages": {Raw: []byte(`"ten"`)}},
		}},
	}, client.DryRunAll); err != nil {
		return "", err
	}
	return shown.first("should be of type int")
}

// warnings that the API server gave.
type warnings struct {
	// mu guards told.
	mu   sync.Mutex
	told []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, text)
}

func (w *warnings) first(with string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.told {
		if strings.Contains(text, with) {
			return text, nil
		}
	}
	return "", fmt.Errorf("%q is not among the warnings %q", with, w.told)
}
