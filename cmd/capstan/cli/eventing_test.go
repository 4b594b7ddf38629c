package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-hub/capstan/hub"
)

func TestEventingFlags(t *testing.T) {
	g := NewWithT(t)
	o, err := parse(t).options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.Eventing).To(Equal(hub.Eventing{
		Name: "capstan", APIBindAddress: ":8091", Webhooks: hub.Webhooks{BindAddress: ":9443", Validation: "warn", Defaulting: "required"},
	}))
	o, err = parse(t, "--hub-name=eu.1", "--nats-url=nats://a:4222,tls://b:4222", "--api-bind-address=127.0.0.1:80", "--api-url=https://hub.example.com/",
		"--eventing-validation=deny", "--eventing-defaulting=off", "--webhook-bind-address=:443", "--webhook-cert-secret=a/b", "--allow-loopback-backends").options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.Eventing).To(Equal(hub.Eventing{
		Name: "eu.1", NATSURL: "nats://a:4222,tls://b:4222", APIBindAddress: "127.0.0.1:80", APIURL: "https://hub.example.com", AllowLoopback: true,
		Webhooks: hub.Webhooks{BindAddress: ":443", Secret: types.NamespacedName{Namespace: "a", Name: "b"}, Validation: "deny", Defaulting: "off"},
	}))
	o, err = parse(t, "--webhook-cert-file=c", "--webhook-key-file=k").options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect([]string{o.Eventing.Webhooks.CertFile, o.Eventing.Webhooks.KeyFile}).To(Equal([]string{"c", "k"}))
	o, err = parse(t, "--webhook-bind-address=0", "--webhook-cert-secret=a/b").options()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.Eventing.Webhooks.Secret.Name).To(BeEmpty(), "off is off")

	// Only the hub's own namespace may use its AWS credentials, unless the flags name others.
	namespaces := func(args ...string) [][]string {
		s := parse(t, args...)
		s.podNamespace = filepath.Join(t.TempDir(), "namespace")
		g.Expect(os.WriteFile(s.podNamespace, []byte("capstan-system\n"), 0o600)).To(Succeed())
		o, err := s.options()
		g.Expect(err).NotTo(HaveOccurred())
		return [][]string{o.Eventing.SQSSourceNamespaces, o.Eventing.SQSSinkNamespaces}
	}
	g.Expect(namespaces()).To(Equal([][]string{{"capstan-system"}, {"capstan-system"}}))
	g.Expect(namespaces("--namespace=team-a")).To(Equal([][]string{{"capstan-system"}, {"capstan-system"}}), "the namespace that it serves is not its own")
	g.Expect(namespaces("--sqs-source-namespaces=a,b", "--sqs-sink-namespaces=*")).To(Equal([][]string{{"a", "b"}, {"*"}}))
	g.Expect(namespaces("--sqs-source-namespaces=")).To(Equal([][]string{{}, {"capstan-system"}}))

	for flags, says := range map[string]string{
		"--sqs-source-namespaces=a,B":                     `--sqs-source-namespaces: "B" is neither the name of a namespace nor *`,
		"--sqs-sink-namespaces=a/b":                       `--sqs-sink-namespaces: "a/b" is neither the name of a namespace nor *`,
		"--hub-name=a b":                                  `--hub-name: "a b" must consist of`,
		"--nats-url=http://nats":                          "--nats-url must be URLs separated by commas",
		"--nats-url=nats://me:mine@nats":                  "--nats-url must be URLs separated by commas, without user and password",
		"--api-bind-address=8091":                         `--api-bind-address: "8091" is neither host:port`,
		"--webhook-bind-address=x":                        `--webhook-bind-address: "x" is neither host:port`,
		"--api-url=hub":                                   `--api-url: "hub" is not an http:// or https:// URL`,
		"--eventing-validation=maybe":                     `--eventing-validation: "maybe" is not a validation mode: must be warn or deny`,
		"--eventing-defaulting=all":                       `--eventing-defaulting: "all" is not a defaulting mode: must be off or required`,
		"--webhook-cert-secret=b":                         `--webhook-cert-secret: "b" is not NAMESPACE/NAME`,
		"--webhook-cert-file=c":                           "--webhook-cert-file: a certificate needs its key",
		"--webhook-cert-secret=a/b|--webhook-cert-file=c": "the certificate is in a Secret or in files",
	} {
		_, err := parse(t, strings.Split(flags, "|")...).options()
		g.Expect(err).To(MatchError(ContainSubstring(says)))
	}
}
