package watchers_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/playground/simulated"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

// TestConfirm: a watch is behind, although the cluster answers. What Confirm asks for is read, and a later event
// of the watch changes nothing of it.
func TestConfirm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *watchers.Options) { o.Timings.Blind = 5 * time.Second })
	fleet, err := simulated.New(simulated.Options{Clusters: 1, Applications: 3})
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(fleet.Close)
	prod := fleet.Clusters()[0]
	name := w.cluster("prod", prod.Kubeconfig())
	app := func(n string) index.Object {
		return index.Object{Cluster: string(name), Kind: index.Kind{Group: apps.HelmRelease.Group, Kind: apps.HelmRelease.Kind}, Namespace: simulated.Namespace, Name: n}
	}
	changed, same, gone, never := app("app-0"), app("app-1"), app("app-2"), app("app-9")
	w.use("shop", changed, same, gone, never)
	for _, o := range []index.Object{changed, same, gone} {
		w.g.Eventually(w.sight(o)).Should(Equal(ready("1.0.0")))
	}
	w.g.Eventually(w.sight(never)).Should(Equal(absent))
	lists := w.meter("capstan_lists_total")

	prod.Mute()
	prod.Deploy(0, "1.1.0")
	prod.DeleteApp(2)
	began := time.Now()
	w.g.Consistently(w.sight(changed), 300*time.Millisecond).Should(Equal(ready("1.0.0")))
	w.wakes.take()
	for _, o := range []index.Object{changed, same, gone, never} {
		w.watcher.Confirm(watchers.Demand{Cluster: name, Kind: apps.HelmRelease, Namespace: o.Namespace, Name: o.Name})
	}
	w.g.Eventually(w.sight(changed)).Should(Equal(ready("1.1.0")))
	w.g.Eventually(w.sight(same)).Should(Equal(ready("1.0.0")))
	w.g.Eventually(w.sight(never)).Should(Equal(absent))
	for _, o := range []index.Object{changed, same, never} {
		seen, _, _ := w.index.Last(o)
		w.g.Expect(seen.Since).To(BeTemporally(">", began), o.Name)
	}
	w.g.Expect(w.wakes.of("shop", false)).NotTo(BeZero())
	// The watch says that it was deleted, and when: until then it is not fresh.
	w.g.Expect(w.sight(gone)()).NotTo(Equal(ready("1.0.0")))
	w.g.Expect(w.meter("capstan_lists_total")).To(Equal(lists))

	prod.Deploy(1, "1.2.0")
	w.g.Eventually(w.sight(gone)).Should(Equal(absent), "the watch resumes after Timings.Blind")
	w.g.Eventually(w.sight(same)).Should(Equal(ready("1.2.0")))
	w.g.Expect(w.sight(changed)()).To(Equal(ready("1.1.0")))
	w.g.Expect(w.meter("capstan_relists_total")).To(BeZero())
}

// TestConfirmMany: objects of which only the key is stored, because they were demanded after the list, are read again, too, and what is
// read is dated.
func TestConfirmMany(t *testing.T) {
	t.Parallel()
	const applications = 20
	w := newWorld(t, nil)
	fleet, err := simulated.New(simulated.Options{Clusters: 1, Applications: applications})
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(fleet.Close)
	name := w.cluster("prod", fleet.Clusters()[0].Kubeconfig())
	all := make([]index.Object, applications)
	for i := range all {
		all[i] = index.Object{Cluster: string(name), Kind: index.Kind(apps.HelmRelease), Namespace: simulated.Namespace, Name: fmt.Sprintf("app-%d", i)}
	}
	seen := func(some []index.Object) {
		t.Helper()
		for _, o := range some {
			w.g.Eventually(w.sight(o)).Should(Equal(ready("1.0.0")), o.Name)
		}
	}
	w.use("first", all[0])
	seen(all[:1])
	w.use("shop", all...)
	seen(all)
	before := fleet.Clusters()[0].Counts()

	began := time.Now()
	for _, o := range all {
		w.watcher.Confirm(watchers.Demand{Cluster: name, Kind: apps.HelmRelease, Namespace: o.Namespace, Name: o.Name})
	}
	seen(all)
	for _, o := range all {
		last, _, _ := w.index.Last(o)
		w.g.Expect(last.Since).To(BeTemporally(">", began), o.Name)
	}
	after := fleet.Clusters()[0].Counts()
	w.g.Expect(after.Lists).To(Equal(before.Lists))
	w.g.Expect(after.Requests-after.Probes).To(BeNumerically("<=", before.Requests-before.Probes+applications), "each is read once")
}

// TestConfirmWithoutADemand: nothing is read, and nothing is marked.
func TestConfirmWithoutADemand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.watcher.Confirm(watchers.Demand{Cluster: "Cluster/team/none", Kind: apps.HelmRelease, Namespace: "apps", Name: "web"})
	app := w.release(w.admin("prod", home), "web")
	w.use("shop", app)
	w.g.Eventually(w.sight(app)).Should(Equal(absent))
}
