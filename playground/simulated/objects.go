package simulated

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// kind is one that the servers know.
type kind struct {
	group, version, kind, resource string
}

var (
	helmRelease   = kind{"helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"}
	kustomization = kind{"kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations"}
	kinds         = []kind{helmRelease, kustomization}
)

// application is all that differs between one HelmRelease and the next.
type application struct {
	number     int
	revision   string
	generation int64
	// upgrades is Helm's own count of the release.
	upgrades int
	// touched counts heartbeats.
	touched int
	version uint64 // resource version
}

func (a application) name() string { return "app-" + strconv.Itoa(a.number) }

// birth of every object.
var birth = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Format(time.RFC3339)

// appendJSON writes the object out, as helm-controller 1.6 leaves it.
func (a application) appendJSON(to []byte, uid, filler string) []byte {
	name := a.name()
	return fmt.Appendf(to, `{"apiVersion":"helm.toolkit.fluxcd.io/v2","kind":"HelmRelease","metadata":{"name":%q,"namespace":%q,"uid":"%s-%d",`+
		`"resourceVersion":"%d","generation":%d,"creationTimestamp":%q,"managedFields":[{"manager":"helm-controller","operation":"Update",`+
		`"apiVersion":"helm.toolkit.fluxcd.io/v2","time":%q,"fieldsType":"FieldsV1","fieldsV1":{"f:touched":{"n:%d":{}}},"subresource":"status"}]},`+
		`"spec":{"interval":"10m0s","chart":{"spec":{"chart":%q,"version":%q,"sourceRef":{"kind":"HelmRepository","name":"charts"}}},"values":{"text":"%s"}},`+
		`"status":{"observedGeneration":%d,"lastAttemptedRevision":%q,"conditions":[{"type":"Ready","status":"True","reason":"UpgradeSucceeded",`+
		`"message":"Helm upgrade succeeded","lastTransitionTime":%q,"observedGeneration":%d}],"history":[{"name":%q,"namespace":%q,"version":%d,`+
		`"status":"deployed","chartName":%q,"chartVersion":%q,"digest":"sha256:1","configDigest":"sha256:2","firstDeployed":%q,"lastDeployed":%q}]}}`,
		name, Namespace, uid, a.number, a.version, a.generation, birth, birth, a.touched, name, a.revision, filler,
		a.generation, a.revision, birth, a.generation, name, Namespace, a.upgrades, name, a.revision, birth, birth)
}

// filler makes an object of about the size.
func newFiller(size int) string {
	bare := len(application{revision: defaultRevision}.appendJSON(nil, "", ""))
	return strings.Repeat("v", max(size-bare, 0))
}

// change is one of a cluster's history.
type change struct {
	// verb is ADDED, MODIFIED or DELETED.
	verb string
	application
}
