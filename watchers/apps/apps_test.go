package apps

import (
	"encoding/json"
	"fmt"
	"os"
	goruntime "runtime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/watchers"
)

// deployed is what helm-controller 1.6 leaves after an upgrade from a HelmRepository.
const deployed = `
  "observedGeneration": 2,
  "conditions": [
    {"type": "Ready", "status": "True", "reason": "UpgradeSucceeded", "observedGeneration": 2, "lastTransitionTime": "2026-01-02T03:04:05Z",
     "message": "Helm upgrade succeeded for release shop/web.v2 with chart web@6.6.1"},
    {"type": "Released", "status": "True", "reason": "UpgradeSucceeded", "observedGeneration": 2, "lastTransitionTime": "2026-01-02T03:04:05Z",
     "message": "Helm upgrade succeeded for release shop/web.v2 with chart web@6.6.1"}
  ],
  "helmChart": "shop/shop-web", "storageNamespace": "shop",
  "history": [
    {"apiVersion": "v2", "digest": "sha256:1111", "name": "web", "namespace": "shop", "version": 2, "status": "deployed", "action": "upgrade",
     "chartName": "web", "chartVersion": "6.6.1", "appVersion": "1.2", "configDigest": "sha256:2222",
     "firstDeployed": "2026-01-01T00:00:00Z", "lastDeployed": "2026-01-02T03:04:05Z"},
    {"apiVersion": "v2", "digest": "sha256:3333", "name": "web", "namespace": "shop", "version": 1, "status": "superseded", "action": "install",
     "chartName": "web", "chartVersion": "6.6.0", "appVersion": "1.1", "configDigest": "sha256:2222",
     "firstDeployed": "2026-01-01T00:00:00Z", "lastDeployed": "2026-01-01T00:00:00Z"}
  ],
  "lastAttemptedGeneration": 2, "lastAttemptedRevision": "6.6.1", "lastAttemptedReleaseAction": "upgrade", "lastAttemptedConfigDigest": "sha256:2222"`

// argoStatus is a status of Argo CD: 1.0.0 was deployed, and 1.1.0 is what it compares with.
func argoStatus(health, sync, operation string) string {
	return `"health": {"status": "` + health + `", "message": "2 of 3"}, "sync": {"status": "` + sync + `", "revision": "1.1.0", "comparedTo": {"destination": {}}},
		"operationState": {"phase": "` + operation + `", "message": "one or more tasks"},
		"history": [{"id": 0, "revision": "0.9.0"}, {"id": 1, "revision": "1.0.0"}]`
}

func ready(status string) string {
	return `"conditions": [{"type": "Ready", "status": "` + status + `", "reason": "Why", "message": "because"}]`
}

func TestObservations(t *testing.T) {
	const (
		helm2     = "helm.toolkit.fluxcd.io/v2"
		helm2b2   = "helm.toolkit.fluxcd.io/v2beta2"
		helm2b1   = "helm.toolkit.fluxcd.io/v2beta1"
		kustomize = "kustomize.toolkit.fluxcd.io/v1"
		fake      = "example.org/v1"
		argo      = "argoproj.io/v1alpha1"
	)
	fine := func(revision, digest string) index.Observation {
		return index.Observation{Found: true, Ready: true, Revision: revision, Digest: digest}
	}
	not := func(revision, message string) index.Observation {
		return index.Observation{Found: true, Revision: revision, Message: message}
	}
	underWay := func(o index.Observation) index.Observation {
		o.Progressing = true
		return o
	}
	because := func(revision, reason, message string) index.Observation {
		return index.Observation{Found: true, Revision: revision, Reason: reason, Message: message}
	}
	oneSnapshot := func(version, oci string) string {
		return `"observedGeneration": 2, ` + ready("True") + `, "history": [{"version": 1, "status": "deployed", "chartVersion": "` + version + `", "ociDigest": "` + oci + `"}]`
	}
	kinds := map[string]schema.GroupKind{
		helm2: HelmRelease, helm2b2: HelmRelease, helm2b1: HelmRelease, kustomize: Kustomization,
		fake: {Group: "example.org", Kind: "Fake"}, argo: Application,
	}
	for _, tc := range []struct {
		name, version, meta, spec, status string
		want                              index.Observation
	}{
		{"upgraded", helm2, "", "", deployed, fine("6.6.1", "")},
		{"just created", helm2, "", "", "", not("", "has not reported Ready yet")},
		{"spec moved on", helm2, `"generation": 3,`, "", deployed, underWay(not("6.6.1", "has not reconciled generation 3 yet (observed: 2)"))},
		{"suspended", helm2, `"generation": 3,`, `"suspend": true`, deployed, not("6.6.1", "is suspended and has not reconciled generation 3 (observed: 2)")},
		{"being deleted", helm2, `"deletionTimestamp": "2026-01-02T03:04:05Z",`, "", deployed, not("6.6.1", "is being deleted")},
		{
			"upgrade failed", helm2, "", "",
			`"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "False", "reason": "UpgradeFailed", "message": "Helm upgrade failed:\nboom"}],
			 "history": [{"version": 3, "status": "failed", "chartVersion": "6.6.2"}, {"version": 2, "status": "deployed", "chartVersion": "6.6.1"}]`,
			because("6.6.1", "UpgradeFailed", "Helm upgrade failed: boom"),
		},
		{
			"upgrade failed, the one before superseded", helm2, "", "",
			`"observedGeneration": 2, ` + ready("False") + `,
			 "history": [{"version": 3, "status": "failed", "chartVersion": "6.6.2"}, {"version": 2, "status": "superseded", "chartVersion": "6.6.1"}]`,
			because("6.6.1", "Why", "because"),
		},
		{
			"Ready from before, newest pending", helm2, "", "",
			`"observedGeneration": 2, ` + ready("True") + `,
			 "history": [{"version": 3, "status": "pending-upgrade", "chartVersion": "6.6.2"}, {"version": 2, "status": "deployed", "chartVersion": "6.6.1"}]`,
			not("6.6.1", "has a newest release that is pending-upgrade, not deployed"),
		},
		{
			"in another order", helm2, "", "",
			`"observedGeneration": 2, ` + ready("True") + `,
			 "history": [{"version": 1, "status": "superseded", "chartVersion": "6.6.0"}, {"version": 2, "status": "deployed", "chartVersion": "6.6.1"}]`,
			fine("6.6.1", ""),
		},
		{"first install failed", helm2, "", "", ready("False") + `, "history": [{"version": 1, "status": "failed", "chartVersion": "1.0.0"}]`, because("", "Why", "because")},
		{"Ready without history", helm2, "", "", `"observedGeneration": 2, ` + ready("True"), because("", "NoRevision", "is Ready, but status.history is empty")},
		{"OCI chart", helm2, "", "", oneSnapshot("6.6.1+0cc9a8446c95", "sha256:0cc9a8446c95e9b4"), fine("6.6.1", "0cc9a8446c95")},
		{"OCI chart, tag before the digest", helm2, "", "", oneSnapshot("6.6.1+0cc9a8446c95", "latest@sha256:0cc9a8446c95e9b4"), fine("6.6.1", "0cc9a8446c95")},
		{"OCI chart, prerelease", helm2, "", "", oneSnapshot("6.6.1-rc.1+0cc9a8446c95", "sha256:0cc9a8446c95e9b4"), fine("6.6.1-rc.1", "0cc9a8446c95")},
		{"build metadata", helm2, "", "", oneSnapshot("1.2.3+build5", ""), fine("1.2.3+build5", "")},
		{"build metadata in an OCI chart", helm2, "", "", oneSnapshot("1.2.3+build5", "sha256:0cc9a8446c95e9b4"), fine("1.2.3+build5", "")},
		{"12 hex, no OCI", helm2, "", "", oneSnapshot("1.2.3+0cc9a8446c95", ""), fine("1.2.3+0cc9a8446c95", "")},
		{"12 hex of another digest", helm2, "", "", oneSnapshot("1.2.3+0cc9a8446c95", "sha256:aaaaaaaaaaaaaaaa"), fine("1.2.3+0cc9a8446c95", "")},
		{"lastAppliedRevision means nothing in v2", helm2, "", "", deployed + `, "lastAppliedRevision": "9.9.9"`, fine("6.6.1", "")},
		{"v2beta1", helm2b1, "", "", `"observedGeneration": 2, "lastAppliedRevision": "1.0.0", ` + ready("True"), fine("1.0.0", "")},
		{"v2beta1 behind", helm2b1, "", "", `"observedGeneration": 1, "lastAppliedRevision": "1.0.0", ` + ready("True"), underWay(not("1.0.0", "has not reconciled generation 2 yet (observed: 1)"))},
		{"v2beta2 with both", helm2b2, "", "", deployed + `, "lastAppliedRevision": "6.6.1"`, fine("6.6.1", "")},
		{"v2beta2 with history alone", helm2b2, "", "", deployed, fine("6.6.1", "")},
		{"Kustomization", kustomize, "", "", `"observedGeneration": 2, "lastAppliedRevision": "main@sha1:abc", ` + ready("True"), fine("main@sha1:abc", "")},
		{"Kustomization at its interval", kustomize, "", "", `"observedGeneration": 2, "lastAppliedRevision": "main@sha1:abc", ` + ready("Unknown"), underWay(because("main@sha1:abc", "Why", "because"))},
		{"Kustomization suspended while it reconciled", kustomize, "", `"suspend": true`, `"observedGeneration": 2, "lastAppliedRevision": "main@sha1:abc", ` + ready("Unknown"), because("main@sha1:abc", "Why", "because")},
		{"Kustomization not observed", kustomize, "", "", `"lastAppliedRevision": "main@sha1:abc", ` + ready("True"), underWay(not("main@sha1:abc", "has not reconciled generation 2 yet (observed: 0)"))},
		{"other kind", fake, "", "", `"lastAppliedRevision": "7", ` + ready("True"), fine("7", "")},
		{"other kind behind", fake, "", "", `"observedGeneration": 1, "lastAppliedRevision": "7", ` + ready("True"), underWay(not("7", "has not reconciled generation 2 yet (observed: 1)"))},
		{"other kind without revision", fake, "", "", ready("True"), because("", "NoRevision", "is Ready, but status.lastAppliedRevision is empty")},
		{"Argo CD", argo, "", "", argoStatus("Healthy", "Synced", "Succeeded"), fine("1.1.0", "")},
		{"Argo CD, new", argo, "", "", "", not("", "has not reported its health and sync status yet")},
		{"Argo CD, being deleted", argo, `"deletionTimestamp": "2026-01-02T03:04:05Z",`, "", argoStatus("Healthy", "Synced", "Succeeded"), not("1.1.0", "is being deleted")},
		{"Argo CD, no operation yet", argo, "", "", argoStatus("Healthy", "Synced", ""), fine("1.1.0", "")},
		{"Argo CD, out of sync: the deployed revision", argo, "", "", argoStatus("Healthy", "OutOfSync", "Succeeded"), because("1.0.0", "OutOfSync", "its sync status is OutOfSync")},
		{"Argo CD, syncing", argo, "", "", argoStatus("Healthy", "OutOfSync", "Running"), underWay(because("1.0.0", "SyncRunning", "one or more tasks"))},
		{"Argo CD, sync failed", argo, "", "", argoStatus("Healthy", "OutOfSync", "Failed"), because("1.0.0", "SyncFailed", "one or more tasks")},
		{"Argo CD, failed hook", argo, "", "", argoStatus("Healthy", "Synced", "Error"), because("1.1.0", "SyncError", "one or more tasks")},
		{"Argo CD, progressing", argo, "", "", argoStatus("Progressing", "Synced", "Succeeded"), underWay(because("1.1.0", "Progressing", "2 of 3"))},
		{"Argo CD, degraded", argo, "", "", argoStatus("Degraded", "Synced", "Succeeded"), because("1.1.0", "Degraded", "2 of 3")},
		{"Argo CD, suspended", argo, "", "", `"health": {"status": "Suspended"}, "sync": {"status": "Synced", "revision": "1"}`, because("1", "Suspended", "its health is Suspended")},
		{"Argo CD, health not known", argo, "", "", `"sync": {"status": "Synced", "revision": "1"}`, because("1", "Unknown", "its health is Unknown")},
		{"Argo CD, not comparable", argo, "", "", `"health": {"status": "Healthy"}, "sync": {"status": "Unknown"}, "conditions": [{"type": "SharedResourceWarning", "message": "x"}, {"type": "ComparisonError", "message": "no such\nrepository"}]`,
			because("", "Unknown", "ComparisonError: no such repository")},
		{"Argo CD, without revision", argo, "", "", `"health": {"status": "Healthy"}, "sync": {"status": "Synced"}`, because("", "NoRevision", "is Ready, but status.sync.revision is empty")},
		{"Argo CD, a chart and its values", argo, "", `"sources": [{"repoURL": "r", "ref": "values"}, {"repoURL": "c", "chart": "web"}]`, `"health": {"status": "Healthy"}, "sync": {"status": "Synced", "revisions": ["abc", "1.1.0"]}`, fine("1.1.0", "")},
		{"Argo CD, one repository twice", argo, "", `"sources": [{"path": "a"}, {"path": "b"}]`, `"health": {"status": "Healthy"}, "sync": {"status": "Synced", "revisions": ["abc", "abc"]}`, fine("abc", "")},
		{"Argo CD, two charts", argo, "", `"sources": [{"chart": "a"}, {"chart": "b"}]`, `"health": {"status": "Healthy"}, "sync": {"status": "Synced", "revisions": ["1.0.0", "2.0.0"]}`, fine("1.0.0,2.0.0", "")},
		{"Argo CD, a source more than was compared", argo, "", `"sources": [{"chart": "a"}, {"chart": "b"}]`, `"health": {"status": "Healthy"}, "sync": {"status": "Synced", "revisions": ["1.0.0"]}`, fine("1.0.0", "")},
		{"Argo CD, malformed", argo, "", `"sources": "x"`, `"health": "x", "sync": {"status": "Synced", "revisions": [1, {}]}, "history": {}, "conditions": 7, "operationState": []`, because("", "Unknown", "its health is Unknown")},
		{"without reason and message", fake, "", "", `"conditions": [{"type": "Ready", "status": "False"}]`, not("", "is not Ready, and gives no reason")},
		{"with a reason and no message", fake, "", "", `"conditions": [{"type": "Ready", "status": "False", "reason": "Why", "message": ""}]`, because("", "Why", "")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			meta := tc.meta
			if !strings.Contains(meta, "generation") {
				meta += `"generation": 2,`
			}
			u := object(g, `{"apiVersion": "`+tc.version+`", "kind": "`+kinds[tc.version].Kind+`",
				"metadata": {`+meta+` "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "5", "labels": {"a": "b"}},
				"spec": {`+tc.spec+`}, "status": {`+tc.status+`}}`)
			kind := Kind(kinds[tc.version])
			stored, err := kind.Reduce(u)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(kind.Observe(stored)).To(Equal(tc.want))
			g.Expect(stored.GetNamespace() + "/" + stored.GetName()).To(Equal("shop/web"))
			g.Expect(stored.GetResourceVersion()).To(Equal("5"))
			g.Expect(stored.GetUID()).To(BeEquivalentTo("u"))
			g.Expect(stored.GetLabels()).To(BeEmpty())
			g.Expect(stored.GetDeletionTimestamp() != nil).To(Equal(u.GetDeletionTimestamp() != nil))
			g.Expect(kind.Reduce(whatIsRead(u, kind))).To(Equal(stored), "no field that is not decoded is read")
		})
	}
}

func object(g *WithT, raw string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	g.Expect(u.UnmarshalJSON([]byte(raw))).To(Succeed())
	return u
}

// whatIsRead returns an object with the fields that the watchers decode.
func whatIsRead(u *unstructured.Unstructured, kind watchers.Kind) *unstructured.Unstructured {
	read := &unstructured.Unstructured{Object: map[string]any{}}
	for _, field := range append([]string{"apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion"}, kind.Reads...) {
		path := strings.Split(field, ".")
		if value, found, err := unstructured.NestedFieldNoCopy(u.Object, path...); err == nil && found {
			_ = unstructured.SetNestedField(read.Object, runtime.DeepCopyJSONValue(value), path...)
		}
	}
	return read
}

func TestMessagesAreCutAndClean(t *testing.T) {
	g := NewWithT(t)
	message := "\x1b[31mred\u202e" + strings.Repeat("ä", 10_000)
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "example.org/v1", "kind": "Fake", "metadata": map[string]any{"name": "x"},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False", "reason": "Bad", "message": message}}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	o := generic(object(g, string(raw)))
	g.Expect(o.Reason).To(Equal("Bad"))
	g.Expect(o.Message).To(HavePrefix("[31mredää"))
	g.Expect(len(o.Message)).To(BeNumerically("<=", maxText))
	g.Expect(utf8.ValidString(o.Message)).To(BeTrue())
}

// No JSON makes the adapters panic, and what they say is bounded and printable.
func FuzzReduce(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"helm.toolkit.fluxcd.io/v2","kind":"HelmRelease","metadata":{"name":"web","generation":2},"status":{` + deployed + `}}`))
	f.Add([]byte(`{"apiVersion":"x/v2beta2","kind":"K","metadata":{"deletionTimestamp":7},"spec":{"suspend":"no"},"status":{"history":[1,null,{"version":"x"}],"conditions":{}}}`))
	f.Add([]byte(`{"apiVersion":"x/v1","kind":"K","metadata":3,"status":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			return
		}
		for _, gk := range []schema.GroupKind{HelmRelease, Kustomization, {Group: "example.org", Kind: "Fake"}} {
			kind := Kind(gk)
			o, err := kind.Reduce(u)
			if err != nil {
				t.Fatalf("%s: %v", gk, err)
			}
			seen := kind.Observe(o)
			if again, err := kind.Reduce(whatIsRead(u, kind)); err != nil || kind.Observe(again) != seen {
				t.Fatalf("%s: of the fields that are decoded: %+v, %v; of all: %+v", gk, kind.Observe(again), err, seen)
			}
			if seen.Ready && (seen.Revision == "" || seen.Message != "") {
				t.Fatalf("ready without a revision, or with a complaint: %+v", seen)
			}
			for _, s := range []string{seen.Reason, seen.Message, seen.Revision, seen.Digest} {
				if len(s) > 2*maxText || strings.ContainsFunc(s, unicode.IsControl) || !utf8.ValidString(s) {
					t.Fatalf("%q", s)
				}
			}
		}
	})
}

// TestMemory: what is stored of an application of 8 KiB, in heap.
func TestMemory(t *testing.T) {
	g := NewWithT(t)
	const apps, budget = 2000, 2560
	kind := Kind(HelmRelease)
	raw := `{"apiVersion":"helm.toolkit.fluxcd.io/v2","kind":"HelmRelease","metadata":{"name":"web-%d","namespace":"shop","generation":2,
		"uid":"2f3e7c1a-0000-4000-8000-%012d","resourceVersion":"%d"},"spec":{"values":{"x":"` + strings.Repeat("v", 6000) + `"}},"status":{` + deployed + `}}`
	stored := make([]any, 0, apps)
	before := heap()
	for i := range apps {
		o, err := kind.Reduce(object(g, fmt.Sprintf(raw, i, i, 100_000+i)))
		g.Expect(err).NotTo(HaveOccurred())
		stored = append(stored, o)
	}
	each := int64(heap()-before) / apps
	goruntime.KeepAlive(stored)
	fmt.Fprintf(os.Stderr, "an application of 8 KiB is stored in %d bytes\n", each)
	g.Expect(each).To(BeNumerically("<", budget))
}

func heap() uint64 {
	goruntime.GC()
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return m.HeapAlloc
}
