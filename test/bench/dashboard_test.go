package bench

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/playground/ports"
	"github.com/capstan-hub/capstan/playground/simulated"
)

// pipelinesOfPage is how many Pipelines a page of the list has.
const pipelinesOfPage = 12

// TestDashboard: the largest fleet's pages, from the first request on, and the cost of viewers.
func TestDashboard(t *testing.T) {
	clusters, pipelines, viewers := count(6, 500), count(4, 200), count(5, 50)
	s := newScene(t, simulated.Options{Clusters: clusters, Applications: 1})
	var names []string
	for i := range pipelines {
		names = append(names, fmt.Sprintf("app-%03d", i))
		var over []*simulated.Cluster
		for k := range few {
			over = append(over, s.clusters[(few*i+k)%clusters])
		}
		s.pipeline(names[i], "helm.toolkit.fluxcd.io/v2", "HelmRelease", "app-0", over...)
	}
	address, err := ports.Free()
	s.g.Expect(err).NotTo(HaveOccurred())
	h := startHub(t, s.namespace, "--dashboard-bind-address="+address, "--dashboard-auth=none")
	s.shown(names, every)
	s.g.Eventually(func() (n int) {
		var all capstanv1.ClusterConnectionList
		s.g.Expect(admin.List(t.Context(), &all, client.InNamespace(s.namespace))).To(Succeed())
		for _, c := range all.Items {
			if c.Status.State == capstanv1.ConnectionReady {
				n++
			}
		}
		return n
	}).Should(Equal(clusters))
	d := dashboardOf{"http://" + address}

	// No client has requested a page yet. What a connection takes to be made does not count.
	_, _, _, err = d.get(t.Context(), "/about")
	s.g.Expect(err).NotTo(HaveOccurred())
	for _, path := range []string{"/pipelines", "/"} {
		first, size, body, err := d.get(t.Context(), path)
		s.g.Expect(err).NotTo(HaveOccurred())
		report(fmt.Sprintf("dashboard, %d clusters × %d Pipelines: first byte of the first request of %s", clusters, pipelines, path), first.Seconds()*1000, 100, "ms")
		report("the same, compressed", float64(size)/1000, 300, "kB")
		entries, want := strings.Count(body, `<li id="square/`), clusters+1 // The management cluster is one of them.
		if path == "/pipelines" {
			entries, want = strings.Count(body, ` id="pipeline/`), min(pipelines, pipelinesOfPage)
		}
		s.g.Expect(entries).To(Equal(want), "%s has all of them, or a page of them", path)
	}

	before := h.cost()
	// As people look: some at all of it, some at one cluster each.
	people := func(i int) string {
		switch i % 4 {
		case 0:
			return "/pipelines"
		case 1:
			return "/"
		}
		return "/clusters/Cluster/" + s.namespace + "/" + s.clusters[i%clusters].Name()
	}
	after, _ := d.watched(s, h, viewers, people, "2.0.0")
	report(fmt.Sprintf("%d viewers of the fleet, the matrix and single clusters: live heap and stacks", viewers), float64(after.Live-before.Live)/mib, 50, "MiB")
	report("the same, resident", float64(after.Resident-before.Resident)/mib, 50, "MiB")
	// An unrealistic case: each viewer has an address of its own, with a tab that the page does not have, so
	// that no page is shared.
	alone := func(i int) string { return []string{"/pipelines", "/"}[i%2] + fmt.Sprintf("?tab=%d", i) }
	after, later := d.watched(s, h, viewers, alone, "3.0.0")
	report(fmt.Sprintf("%d viewers at addresses of their own: live heap and stacks", viewers), float64(after.Live-before.Live)/mib, 50, "MiB")
	report("the same, first byte of their first requests: p99", quantile(later, 0.99), 100, "ms")
}

// watched is the hub's cost while viewers look, and the times to first bytes of their
// first requests, sorted.
func (d dashboardOf) watched(s *scene, h *hubProcess, viewers int, at func(int) string, revision string) (cost, []time.Duration) {
	ctx, cancel := context.WithCancel(s.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	heard := make(chan error, viewers)
	matrices := 0
	var times []time.Duration
	for i := range viewers {
		path := at(i)
		first, _, body, err := d.get(ctx, path)
		s.g.Expect(err).NotTo(HaveOccurred())
		times = append(times, first)
		matrix := strings.HasPrefix(path, "/pipelines")
		if matrix {
			matrices++
		}
		watching.Go(func() {
			if err := d.follow(ctx, path, body); matrix {
				heard <- err
			}
			<-ctx.Done()
		})
	}
	for _, c := range s.clusters[:few] { // All of the first Pipeline: every matrix changes.
		c.Deploy(0, revision)
	}
	for range matrices {
		s.g.Eventually(heard).Should(Receive(BeNil()))
	}
	slices.Sort(times)
	return h.cost(), times
}

// dashboardOf a hub.
type dashboardOf struct{ url string }

// get a page as a browser does: the time to its first byte, its size as it was sent,
// and what it says. The hub may have to read its objects yet.
func (d dashboardOf) get(ctx context.Context, path string) (first time.Duration, size int, body string, err error) {
	var begun time.Time
	trace := &httptrace.ClientTrace{
		WroteRequest:         func(httptrace.WroteRequestInfo) { begun = time.Now() },
		GotFirstResponseByte: func() { first = time.Since(begun) },
	}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodGet, d.url+path, nil)
	if err != nil {
		return 0, 0, "", err
	}
	request.Header.Set("Accept-Encoding", "gzip")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, 0, "", err
	}
	defer response.Body.Close()
	sent, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return 0, 0, "", fmt.Errorf("%s: %s: %w", path, response.Status, err)
	}
	unpacked, plain := string(sent), response.Header.Get("Content-Encoding") == ""
	if !plain {
		z, err := gzip.NewReader(strings.NewReader(unpacked))
		if err != nil {
			return 0, 0, "", err
		}
		raw, err := io.ReadAll(z)
		if err != nil {
			return 0, 0, "", err
		}
		unpacked = string(raw)
	}
	return first, len(sent), unpacked, nil
}

var versionOfPage = regexp.MustCompile(`data-version="([^"]+)"`)

// follow a page until the first patch of it, and then until the context ends.
func (d dashboardOf) follow(ctx context.Context, path, body string) error {
	found := versionOfPage.FindStringSubmatch(body)
	if found == nil {
		return fmt.Errorf("%s has no version", path)
	}
	query := url.Values{"page": {path}, "from": {found[1]}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/stream?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request) //nolint:bodyclose // The stream stays open until the context ends, which closes it.
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "event: patch") {
			return nil
		}
	}
	return fmt.Errorf("%s: the stream ended: %w", path, lines.Err())
}
