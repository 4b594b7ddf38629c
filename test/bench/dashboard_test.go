package bench

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
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
	"github.com/capstan-hub/capstan/test/bench/fleet"
)

// dashboardVariable of the environment is the address at which a hub process serves
// its dashboard; none when empty.
const dashboardVariable = "CAPSTAN_BENCH_DASHBOARD"

// TestDashboard: the largest fleet's pages, from the first look on, and what viewers cost.
func TestDashboard(t *testing.T) {
	clusters, pipelines, viewers := count(6, 500), count(4, 200), count(5, 50)
	s := newScene(t, fleet.Options{Clusters: clusters, Applications: 1})
	var names []string
	for i := range pipelines {
		names = append(names, fmt.Sprintf("app-%03d", i))
		var over []*fleet.Cluster
		for k := range few {
			over = append(over, s.clusters[(few*i+k)%clusters])
		}
		s.pipeline(names[i], "helm.toolkit.fluxcd.io/v2", "HelmRelease", "app-0", over...)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.g.Expect(err).NotTo(HaveOccurred())
	address := listener.Addr().String()
	s.g.Expect(listener.Close()).To(Succeed())
	t.Setenv(dashboardVariable, address)
	h := startHub(t, s.namespace)
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

	// Nobody has looked yet. What a connection takes to be made does not count.
	_, _, _, err = d.get(t.Context(), "/about")
	s.g.Expect(err).NotTo(HaveOccurred())
	var later []time.Duration
	for _, path := range []string{"/pipelines", "/"} {
		first, size, body, err := d.get(t.Context(), path)
		s.g.Expect(err).NotTo(HaveOccurred())
		report(fmt.Sprintf("dashboard, %d clusters × %d Pipelines: first byte of the first look at %s", clusters, pipelines, path), first.Seconds()*1000, 100, "ms")
		report("the same, compressed", float64(size)/1000, 300, "kB")
		s.g.Expect(strings.Count(body, map[string]string{"/pipelines": `<tr id="pipeline/`, "/": `<li id="cluster/`}[path])).To(Equal(map[string]int{"/pipelines": pipelines, "/": clusters}[path]), "all of them")
	}

	before := h.cost(t)
	// Each looks at an address of its own that shows everything: no page is shared.
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	heard := make(chan int, viewers)
	for i := range viewers {
		path := []string{"/pipelines", "/"}[i%2] + fmt.Sprintf("?page=%d", i+2)
		first, _, body, err := d.get(ctx, path)
		s.g.Expect(err).NotTo(HaveOccurred())
		later = append(later, first)
		watching.Go(func() {
			if d.follow(ctx, path, body) == nil {
				heard <- i
			}
		})
	}
	for i, c := range s.clusters {
		if i < few { // Of the first Pipeline: every page changes.
			c.Deploy(0, "2.0.0")
		}
	}
	for range viewers / 2 { // Those of the matrix; who sees cards hears nothing of it.
		s.g.Eventually(heard).Should(Receive())
	}
	after := h.cost(t)
	cancel()
	watching.Wait()
	slices.Sort(later)
	report(fmt.Sprintf("the same, of %d further addresses: p99", viewers), quantile(later, 0.99)*1000, 100, "ms")
	report(fmt.Sprintf("%d viewers, each at an address of its own: live heap and stacks", viewers), float64(after.Live-before.Live)/mib, 50, "MiB")
	report("the same, resident", float64(after.Resident-before.Resident)/mib, 50, "MiB")
	NewWithT(t).Expect(after.Live).To(BeNumerically(">", before.Live))
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
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		response.Body.Close()
	}()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "event: patch") {
			return nil
		}
	}
	return fmt.Errorf("%s: the stream ended: %w", path, lines.Err())
}
