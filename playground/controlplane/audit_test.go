package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestAuditLogShowsUsersAndRequests(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	plane, err := Start(Options{AuditLog: path})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(plane.Stop()).To(Succeed()) })

	config := plane.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "mallory"}
	set, err := kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = set.CoreV1().Secrets("default").Get(t.Context(), "a", metav1.GetOptions{})
	g.Expect(err).To(HaveOccurred())
	admin, err := kubernetes.NewForConfig(plane.Config())
	g.Expect(err).NotTo(HaveOccurred())
	_, err = admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	all, err := ReadAudit(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(ContainElements(
		Request{User: "mallory", Verb: "get", Resource: "secrets", Namespace: "default", Name: "a", Path: "/api/v1/namespaces/default/secrets/a", Code: 403},
		And(HaveField("Verb", "create"), HaveField("Resource", "namespaces"), HaveField("Code", 201)),
	))

	// An incomplete line is skipped.
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = file.WriteString(`{"verb": "ge`)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(file.Close()).To(Succeed())
	again, err := ReadAudit(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(again)).To(BeNumerically(">=", len(all)))
}
