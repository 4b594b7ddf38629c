package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

const (
	killsInShort = 3
	killsInSoak  = 30
	// killWithin is the time after a commit or a merge in which the hub is killed. The next
	// pull request takes about three seconds.
	killWithin = 4 * time.Second
)

// hubIsKilled: revisions of two applications are promoted, and during each promotion the
// hub is killed and started again. The promotions must be the same as without the kills.
func (w *world) hubIsKilled() {
	kills := killsInShort
	if os.Getenv("CAPSTAN_SOAK") != "" {
		kills = killsInSoak
	}
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("CAPSTAN_SEED"); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		w.g.Expect(err).NotTo(HaveOccurred())
	}
	w.Logf("CAPSTAN_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	began := time.Now()
	w.startHub(direct...)
	w.hubReady()

	killed := 0
	for n := 0; killed < kills; n++ {
		revision := fmt.Sprintf("2.%d.0", n)
		w.release(revision, shop, billing)
		for _, env := range environments[1:] {
			if killed < kills {
				killed++
				w.kill(killed, time.Duration(random.Int64N(int64(killWithin))))
			}
			w.mergeAll(revision, env)
		}
		w.atRest(revision)
	}
	w.audit()
	w.stopHub()
	w.Logf("%d kills, %d promotions, %d pull requests, none doubled, none lost, in %.0f s",
		killed, len(w.expected), len(w.expected), time.Since(began).Seconds())
}

// mergeAll waits for the pull request of each application, and merges it.
func (w *world) mergeAll(revision, env string) {
	w.Helper()
	for _, app := range []string{shop, billing} {
		p := expected{app, env, revision}
		w.g.Expect(w.repository.Merge(w.Context(), w.open(p).Index)).To(Succeed())
	}
}

// kill waits, kills the hub and starts another one.
func (w *world) kill(number int, after time.Duration) {
	w.Helper()
	<-time.After(after)
	w.g.Expect(w.hub.Kill()).To(Succeed())
	w.Logf("kill %d, %.2f s after the cause of the next promotions; %s", number, after.Seconds(), w.underWay())
	w.startHub(direct...)
}

// underWay returns the phases of the promotions in progress when the hub was killed.
func (w *world) underWay() string {
	var list capstanv1.PromotionList
	w.g.Expect(w.admin.List(w.Context(), &list)).To(Succeed())
	var unfinished []string
	for _, p := range list.Items {
		if p.Status.Phase != capstanv1.PhaseSucceeded {
			unfinished = append(unfinished, fmt.Sprintf("%s %s into %s %s", p.Spec.Pipeline.Name, p.Spec.Revision, p.Spec.Environment, p.Status.Phase))
		}
	}
	if len(unfinished) == 0 {
		return "no promotion was in progress"
	}
	slices.Sort(unfinished)
	return strings.Join(unfinished, ", ")
}
