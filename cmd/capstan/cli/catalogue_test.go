package cli

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-hub/capstan/hub/annotator/publication"
)

// catalogue covers what is said of the hub's catalogue of EC2, for a node group in eu-west-1.
func (from *readFrom) catalogue(t *testing.T, explain func() string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(explain()).To(ContainSubstring("\n  catalogue of eu-west-1: not known: there is no ConfigMap capstan-system/capstan-catalogue; set --hub-namespace"))
	g.Expect(from.c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: defaultHubNamespace}})).To(Succeed())
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: defaultHubNamespace, Name: publication.Name}}
	g.Expect(from.c.Create(t.Context(), m)).To(Succeed())
	for value, want := range map[string]string{
		`{"regions":[]}`: "the hub has not queried the region since it leads\n",
		`{`:              "not known: reading ConfigMap capstan-system/capstan-catalogue: ",
		`{"regions":[{"name":"eu-west-1","listed":"2026-01-10T10:00:00Z","types":812}]}`:                                                                                                "listed ",
		`{"regions":[{"name":"eu-west-1","types":0,"failing":[{"since":"2026-01-10T10:00:00Z","class":"access_denied","message":"AWS denies ec2:DescribeInstanceTypes: allow it"}]}]}`:  "never listed; failing for ",
		`{"regions":[{"name":"eu-west-1","types":0,"failing":[{"role":"arn:other","since":"2026-01-10T10:00:00Z","class":"access_denied","message":"of another role"}]}]}`:              "never listed\n",
		`{"regions":[{"name":"eu-west-1","types":0,"failing":[{"all":true,"since":"2026-01-10T10:00:00Z","class":"unavailable","message":"EC2 in region eu-west-1 is unreachable"}]}]}`: "never listed; failing for ",
	} {
		m.Data = map[string]string{publication.Key: value}
		g.Expect(from.c.Update(t.Context(), m)).To(Succeed())
		g.Expect(explain()).To(ContainSubstring("\n  catalogue of eu-west-1: "+want), value)
	}
	g.Expect(from.c.Delete(t.Context(), m)).To(Succeed())
}
