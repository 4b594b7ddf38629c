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
	// carol signs in to a dashboard that requires it. She may read Pipelines and Promotions
	// of the namespace apps.
	carol = "carol"
	// maxPage is the size, in bytes, up to which a page is read.
	maxPage = 1 << 20
)

// userChapter uses the dashboard, discovery, and the webhook through the API server.
type userChapter struct {
	management *management
	hub        addresses
	// signIn: the dashboard requires a token.
	signIn bool
}

func (c userChapter) play(ctx context.Context, s *stage) error {
	browser, err := c.browser(ctx, s)
	if err != nil {
		return err
	}
	shown := []struct {
		page, what string
		seen       bool
	}{
		{"pipelines", "/pipelines/" + appsNamespace + "/" + shop, true},
		{"promotions", billing, true},
		{"", "/clusters/Cluster/" + fleetNamespace + "/" + prod, !c.signIn},
		{"backends", hubNamespace + "/" + busName, !c.signIn},
	}
	for _, expected := range shown {
		what := fmt.Sprintf("/%s shows %s", expected.page, expected.what)
		if !expected.seen {
			what = fmt.Sprintf("/%s does not show %s to %s", expected.page, expected.what, carol)
		}
		if err := s.await(ctx, what, func(ctx context.Context) error {
			text, err := page(ctx, browser, c.hub.dashboard+expected.page)
			if err == nil && strings.Contains(text, expected.what) != expected.seen {
				err = fmt.Errorf("it is in %s: %t", c.hub.dashboard+expected.page, !expected.seen)
			}
			return err
		}); err != nil {
			return err
		}
	}
	if err := s.expect(ctx, "discovery lists the types of event backends", func(ctx context.Context) error {
		text, err := page(ctx, http.DefaultClient, c.hub.api+"backend")
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
	return s.await(ctx, "the API server warns about an EventingBackend with a mistake", func(ctx context.Context) error {
		warning, err := c.mistake(ctx)
		if err == nil {
			s.note("Warning: %s", warning)
		}
		return err
	})
}

// browser returns a client that has signed in, if the dashboard requires it.
func (c userChapter) browser(ctx context.Context, s *stage) (*http.Client, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	browser := &http.Client{Jar: jar}
	if !c.signIn {
		return browser, nil
	}
	token, err := c.tokenOfCarol(ctx)
	if err != nil {
		return nil, err
	}
	return browser, s.await(ctx, carol+" signs in to the dashboard with a token", func(ctx context.Context) error {
		form := url.Values{"token": {token}, "next": {"/pipelines"}}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.hub.dashboard+"signin", strings.NewReader(form.Encode()))
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
func (c userChapter) tokenOfCarol(ctx context.Context) (string, error) {
	const life = time.Hour
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: carol}}
	for _, o := range []client.Object{account, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: appsNamespace, Name: carol},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewer},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: appsNamespace, Name: carol}},
	}} {
		if err := c.management.Create(ctx, o); err != nil {
			return "", fmt.Errorf("declaring %s: %w", carol, err)
		}
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(life.Seconds()))}}
	if err := c.management.SubResource("token").Create(ctx, account, request); err != nil {
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

// mistake returns the warning about a mistake in an EventingBackend, which is not stored.
func (c userChapter) mistake(ctx context.Context) (string, error) {
	shown := &warnings{}
	config := rest.CopyConfig(c.management.plane.Config())
	config.WarningHandlerWithContext = shown
	warned, err := client.New(config, client.Options{Scheme: c.management.Scheme()})
	if err != nil {
		return "", err
	}
	if err := warned.Create(ctx, &eventingv1.EventingBackend{
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
	// mu guards texts.
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) first(with string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.texts {
		if strings.Contains(text, with) {
			return text, nil
		}
	}
	return "", fmt.Errorf("%q is not among the warnings %q", with, w.texts)
}
