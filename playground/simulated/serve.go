package simulated

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// gitVersion of the servers.
const gitVersion = "v1.37.2"

// hugeBytes is about what a Huge list amounts to.
const hugeBytes = 300 << 20

// buffers in which answers are written out.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}

// ServeHTTP implements http.Handler: one API server.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.count.requests.Add(1)
	probe := r.URL.Path == "/readyz"
	if probe {
		c.count.probes.Add(1)
	}
	mode, delay := c.treatment()
	switch mode {
	case Tarpit:
		if !c.sitOut(r, Tarpit) {
			return
		}
	case Slow:
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	case Unauthorized:
		c.unauthorized(w)
		return
	case Broken:
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "out of order")
		return
	case Garbage:
		if !probe {
			_, _ = w.Write([]byte("<html>It works!</html>"))
			return
		}
	case Serve, Refuse, HalfOpen, Forbidden, Gone, TooMany, Huge, Endless, NoCRD:
	}
	if !c.knows(r) {
		c.unauthorized(w)
		return
	}
	c.answers()
	c.route(w, r, mode)
}

func (c *Cluster) treatment() (Mode, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lockedState.mode, c.lockedState.delay
}

// sitOut waits until the mode is another; false when the client went before.
func (c *Cluster) sitOut(r *http.Request, m Mode) bool {
	for {
		c.mu.Lock()
		mode, changed := c.lockedState.mode, c.lockedState.changed
		c.mu.Unlock()
		if mode != m {
			return true
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return false
		}
	}
}

// knows is whether the client has the credentials.
func (c *Cluster) knows(r *http.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.o.Auth == AuthToken {
		return r.Header.Get("Authorization") == "Bearer "+c.lockedState.token
	}
	return len(r.TLS.PeerCertificates) > 0 && r.TLS.PeerCertificates[0].SerialNumber.Int64() >= c.lockedState.least
}

func (c *Cluster) unauthorized(w http.ResponseWriter) {
	c.count.unauthorized.Add(1)
	refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
}

func (c *Cluster) route(w http.ResponseWriter, r *http.Request, mode Mode) {
	switch r.URL.Path {
	case "/readyz":
		_, _ = w.Write([]byte("ok"))
	case "/version":
		answer(w, map[string]string{"major": "1", "minor": "37", "gitVersion": gitVersion})
	case "/api/v1/namespaces/" + metav1.NamespaceSystem:
		answer(w, map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]string{
			"name": metav1.NamespaceSystem, "uid": c.uid(), "resourceVersion": "4", "creationTimestamp": birth,
		}})
	default:
		for _, k := range kinds {
			if mode != NoCRD && c.routeKind(w, r, mode, k) {
				return
			}
		}
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	}
}

func (c *Cluster) uid() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lockedState.uid
}

// routeKind is false when the path is not of the kind.
func (c *Cluster) routeKind(w http.ResponseWriter, r *http.Request, mode Mode, k kind) bool {
	group := "/apis/" + k.group
	if r.URL.Path == group {
		version := map[string]string{"groupVersion": k.group + "/" + k.version, "version": k.version}
		answer(w, map[string]any{"kind": "APIGroup", "apiVersion": "v1", "name": k.group,
			"versions": []any{version}, "preferredVersion": version})
		return true
	}
	rest, mine := strings.CutPrefix(r.URL.Path, group+"/"+k.version)
	if !mine {
		return false
	}
	if rest == "" {
		answer(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": k.group + "/" + k.version,
			"resources": []any{map[string]any{"name": k.resource, "singularName": strings.ToLower(k.kind), "namespaced": true, "kind": k.kind,
				"verbs": []string{"get", "list", "watch"}}}})
		return true
	}
	parts := strings.Split(strings.Trim(rest, "/"), "/")
	namespace := ""
	if len(parts) > 2 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	if parts[0] != k.resource || len(parts) > 2 || r.Method != http.MethodGet {
		return false
	}
	switch mode {
	case Forbidden:
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("%s.%s is forbidden: User \"hub\" cannot list it", k.resource, k.group))
		return true
	case TooMany:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests, please try again later")
		return true
	case Serve, Refuse, Tarpit, HalfOpen, Slow, Unauthorized, Gone, Broken, Garbage, Huge, Endless, NoCRD:
	}
	if len(parts) == 2 {
		c.get(w, k, namespace, parts[1])
		return true
	}
	if q := r.URL.Query(); q.Get("watch") == "true" || q.Get("watch") == "1" {
		c.watch(w, r, k, namespace)
	} else {
		c.list(w, r, mode, k, namespace)
	}
	return true
}

// answer writes JSON.
func answer(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(what) // The client may be gone.
}

// status is the object in which API servers say what is wrong.
func status(code int, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Message: message, Reason: reason, Code: int32(code),
	}
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status(code, reason, message))
}

// snapshot of a kind in a namespace, or all.
func (c *Cluster) snapshot(k kind, namespace string) (apps []application, version uint64, uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.lockedState
	if k == helmRelease && (namespace == "" || namespace == Namespace) {
		apps = make([]application, 0, len(s.apps))
		for _, a := range s.apps {
			if a != nil {
				apps = append(apps, *a)
			}
		}
	}
	return apps, s.version, s.uid
}

func (c *Cluster) get(w http.ResponseWriter, k kind, namespace, name string) {
	apps, _, uid := c.snapshot(k, namespace)
	i := slices.IndexFunc(apps, func(a application) bool { return a.name() == name })
	if i < 0 {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s.%s %q not found", k.resource, k.group, name))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(apps[i].appendJSON(nil, uid, c.filler))
}

func (c *Cluster) list(w http.ResponseWriter, r *http.Request, mode Mode, k kind, namespace string) {
	apps, version, uid := c.snapshot(k, namespace)
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	first, _ := strconv.Atoi(q.Get("continue"))
	apps = apps[min(first, len(apps)):]
	next := ""
	if limit > 0 && len(apps) > limit {
		apps, next = apps[:limit], strconv.Itoa(first+limit)
	}
	if mode == Endless {
		next = "0"
	}
	if limit != 1 {
		c.count.lists.Add(1)
	}
	w.Header().Set("Content-Type", "application/json")
	buffer, _ := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	b := fmt.Appendf((*buffer)[:0], `{"kind":"%sList","apiVersion":"%s/%s","metadata":{"resourceVersion":"%d","continue":%q},"items":[`,
		k.kind, k.group, k.version, version, next)
	for i, a := range apps {
		if i > 0 {
			b = append(b, ',')
		}
		b = a.appendJSON(b, uid, c.filler)
	}
	if mode == Huge && limit != 1 {
		for sent, number := 0, first+len(apps); sent < hugeBytes; number++ {
			b = append(b, ',')
			b = application{number: number, revision: c.o.Revision}.appendJSON(b, uid, c.filler)
			if len(b) > 1<<20 {
				if _, err := w.Write(b); err != nil {
					return
				}
				sent += len(b)
				b = b[:0]
			}
		}
	}
	b = append(b, "]}\n"...)
	_, _ = w.Write(b)
	*buffer = b
}
