package approval

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// FuzzRoute: a path made of names is parsed to the same names, and parsed names are valid.
func FuzzRoute(f *testing.F) {
	f.Add("apps", "shop", "prod", "1.2.0", "/approval/apps/shop/prod/1.2.0")
	f.Add("apps", "shop", "Prod EU/überall", "1.2.0+b/c", "/promotion/apps/shop/%2F")
	f.Add("..", "", "\xff", "%", "//%zz/../")
	f.Fuzz(func(t *testing.T, namespace, pipeline, environment, revision, path string) {
		if r, ok := parseRoute(path); ok {
			again := PromotionPath(r.namespace, r.pipeline, r.environment)
			if r.endpoint == approvalEndpoint {
				again = ApprovalPath(r.namespace, r.pipeline, r.environment, r.revision)
			}
			if r2, ok := parseRoute(again); !ok || r2 != r {
				t.Errorf("%q is %+v, and %q is %+v", path, r, again, r2)
			}
			if strings.ContainsAny(r.namespace+r.pipeline, "/%\\ ") || r.namespace == ".." || r.environment == "" {
				t.Errorf("%q names %+v", path, r)
			}
		}
		r, ok := parseRoute(ApprovalPath(namespace, pipeline, environment, revision))
		if ok && (r != route{approvalEndpoint, namespace, pipeline, environment, revision}) {
			t.Errorf("%q/%q/%q/%q became %+v", namespace, pipeline, environment, revision, r)
		}
	})
}

// FuzzSignature: no header causes a panic, and only a signature with the key is accepted.
func FuzzSignature(f *testing.F) {
	f.Add("v2=00", "1800000000", "POST", "/promotion/a/b/c", []byte("body"), false)
	f.Add("sha256=00", "", "POST", "/approval/a/b/c/d", []byte(nil), true)
	f.Add("v2", "-9223372036854775808", "", "", []byte{0xff}, false)
	f.Fuzz(func(t *testing.T, signature, timestamp, method, path string, body []byte, legacy bool) {
		r := route{endpoint: promotionEndpoint}
		headers := http.Header{SignatureHeader: {signature}, TimestampHeader: {timestamp}}
		if s, err := parseSignature(headers, legacy, now); err == nil && s.check(key, r, method, path, body) == nil {
			t.Fatalf("%q at %q passes", signature, timestamp) // Guessing a MAC is practically impossible.
		}
		right := Sign(key, method, path, now, body)
		s, err := parseSignature(right, legacy, now)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.check(key, r, method, path, body); err != nil {
			t.Fatalf("what was signed does not pass: %v", err)
		}
		for what, err := range map[string]error{
			"method": s.check(key, r, method+"x", path, body),
			"path":   s.check(key, r, method, path+"x", body),
			"body":   s.check(key, r, method, path, append(slices.Clone(body), 'x')),
			"key":    s.check(append(slices.Clone(key), 'x'), r, method, path, body),
			// Moving a line break from one part to another gives a different message.
			"parts": s.check(key, r, method+"\n"+path, "", body),
		} {
			if err == nil && (what != "parts" || path != "") {
				t.Errorf("another %s passes", what)
			}
		}
	})
}

// FuzzServe: every request gets one of the answers of the contract, and no call without the key
// is accepted.
func FuzzServe(f *testing.F) {
	f.Add("POST", "/promotion/apps/shop/dev", "v2=00", "1800000000", []byte("{}"), true)
	f.Add("GET", "/approval/apps/shop/prod/1", "sha256=00", "", []byte(nil), false)
	f.Add("POST", "/approval/apps/shop/prod/%2F", "", "", []byte("x"), false)
	f.Fuzz(func(t *testing.T, method, path, signature, timestamp string, body []byte, signed bool) {
		request, err := http.NewRequestWithContext(t.Context(), method, "http://hub"+path, bytes.NewReader(body))
		if err != nil {
			t.Skip() // Such a request cannot be sent.
		}
		request.Header = http.Header{SignatureHeader: {signature}, TimestampHeader: {timestamp}}
		if signed {
			request.Header = Sign(key, method, request.URL.EscapedPath(), time.Now(), body)
		}
		recorder := httptest.NewRecorder()
		New(Options{Client: oneShop{}, LegacySignatures: true, Logger: logr.Discard()}).ServeHTTP(recorder, request)
		allowed := []int{400, 401, 404, 405, 413}
		if signed {
			// No promotion waits for an approval, and no application has the name in the event.
			allowed = append(allowed, 422)
		}
		if request.URL.Path == healthPath {
			allowed = []int{200}
		}
		if !slices.Contains(allowed, recorder.Code) {
			t.Errorf("%s %q is answered with %s %s", method, path, strconv.Itoa(recorder.Code), recorder.Body)
		}
	})
}

// oneShop is a fake API server with one Pipeline, its Secret and no Promotion. A real one cannot
// answer a hundred thousand calls per minute.
type oneShop struct{ client.Client }

func (oneShop) Get(_ context.Context, name client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *pipelinesv1.Pipeline:
		o.Namespace, o.Name, o.UID = name.Namespace, name.Name, types.UID("uid")
		o.Spec.Environments = []pipelinesv1.Environment{{Name: "dev"}, {Name: "prod", Targets: []pipelinesv1.Target{{Namespace: "shop"}}}}
		o.Spec.Promotion = &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{
			Notification: &pipelinesv1.NotificationPromotion{}, SecretRef: &pipelinesv1.LocalObjectReference{Name: "hmac"}}}
	case *corev1.Secret:
		o.Data = map[string][]byte{SecretKey: key}
	}
	return nil
}

func (oneShop) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	if list, ok := l.(*capstanv1.PromotionList); ok {
		list.Items = nil
	}
	return nil
}
