package cli

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

func awsEventing(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Main(t.Context(), append([]string{"aws-eventing", "print"}, args...), &o, &e)
	return code, o.String(), e.String()
}

func TestAWSEventingPrint(t *testing.T) {
	const hub, member = "111122223333", "444455556666"
	for _, tc := range []struct {
		args []string
		want func() ([]byte, error)
	}{
		{nil, func() ([]byte, error) { return provision.Hub(provision.Options{}) }},
		{[]string{"--name=events", "--members=" + member + ",777788889999", "--hub-role=capstan-hub"}, func() ([]byte, error) {
			return provision.Hub(provision.Options{Name: "events", Members: []string{member, "777788889999"}, HubRole: "capstan-hub"})
		}},
		{[]string{"--organization=o-a1b2c3d4e5", "--assumed-by=arn:aws:iam::" + hub + ":role/x", "--external-id=capstan"}, func() ([]byte, error) {
			return provision.Hub(provision.Options{Organization: "o-a1b2c3d4e5", AssumedBy: "arn:aws:iam::" + hub + ":role/x", ExternalID: "capstan"})
		}},
		{[]string{"--member-of=" + hub, "--name=events"}, func() ([]byte, error) { return provision.Member(provision.Options{Name: "events"}, hub) }},
	} {
		g := NewWithT(t)
		want, err := tc.want()
		g.Expect(err).NotTo(HaveOccurred())
		code, out, errOut := awsEventing(t, tc.args...)
		g.Expect(errOut).To(BeEmpty())
		g.Expect(code).To(BeZero())
		g.Expect(out).To(Equal(string(want)))
	}
}

func TestAWSEventingPrintRefuses(t *testing.T) {
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"--members=12", "--name=a b"}, `--members: "12" is not an account id`},
		{[]string{"--members=12", "--name=a b"}, `--name: "a b" must be`},
		{[]string{"--member-of="}, `--member-of: "" is not an account id`},
		{[]string{"eu-west-1"}, "unknown command"},
		{[]string{"--region=eu-west-1"}, "unknown flag: --region (see capstan --help)"},
	} {
		g := NewWithT(t)
		code, out, errOut := awsEventing(t, tc.args...)
		g.Expect(code).To(Equal(1))
		g.Expect(out).To(BeEmpty())
		g.Expect(errOut).To(ContainSubstring(tc.says))
	}
}

// The commands of the help and of docs/instance-state.md are right.
func TestAWSEventingCommandsOfTheDocuments(t *testing.T) {
	g := NewWithT(t)
	document, err := os.ReadFile("../../../docs/instance-state.md")
	g.Expect(err).NotTo(HaveOccurred())
	printing, _, err := newRoot().Find([]string{"aws-eventing", "print"})
	g.Expect(err).NotTo(HaveOccurred())
	commands := regexp.MustCompile(`(?m)^ +capstan aws-eventing print(.*)$`).FindAllStringSubmatch(string(document)+printing.Example, -1)
	g.Expect(len(commands)).To(BeNumerically(">=", 9))
	for _, command := range commands {
		args, _, _ := strings.Cut(command[1], ">")
		code, _, errOut := awsEventing(t, strings.Fields(args)...)
		g.Expect(code).To(BeZero(), "%s: %s", command[0], errOut)
	}
}
