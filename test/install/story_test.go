package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	yamlv3 "go.yaml.in/yaml/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/fleet"
)

// The hub runs the whole story with the permissions of the chart: no request is denied, and
// every permission is used or has a comment.
func TestTheStoryWithTheChartsRights(t *testing.T) {
	if os.Getenv("CAPSTAN_E2E") == "" {
		t.Skip("run by `make e2e`")
	}
	g := NewWithT(t)
	text, err := chart(t, "--set", "clusterNamespaces={"+fleetNamespace+"}", "--set", "pipelineNamespaces={"+appsNamespace+"}",
		"--set", "backendNamespaces={"+hubNamespace+"}")
	g.Expect(err).NotTo(HaveOccurred())
	auditLog := filepath.Join(t.TempDir(), "audit.log")

	var output bytes.Buffer
	err = fleet.Run(t.Context(), fleet.Options{Dir: t.TempDir(), Out: &output, Installation: []byte(text), AuditLog: auditLog},
		func(ctx context.Context, f *fleet.Fleet) error { return f.Play(ctx) })
	g.Expect(err).NotTo(HaveOccurred(), output.String())

	all, err := controlplane.ReadAudit(auditLog)
	g.Expect(err).NotTo(HaveOccurred())
	requests := slices.DeleteFunc(all, func(r controlplane.Request) bool { return r.User != hubUser })
	g.Expect(requests).NotTo(BeEmpty(), "the hub ran as its ServiceAccount")
	for _, r := range requests {
		g.Expect(r.Code).NotTo(Or(Equal(401), Equal(403)), "%+v", r)
	}

	excused := excuses(t)
	var unused, used []string
	for _, right := range rightsOf(t, text) {
		switch is := slices.ContainsFunc(requests, right.allows); {
		case is && excused[right.String()]:
			used = append(used, right.String())
		case !is && !excused[right.String()]:
			unused = append(unused, right.String())
		}
	}
	var stale []string
	for name := range excused {
		if !slices.ContainsFunc(rightsOf(t, text), func(r right) bool { return r.String() == name }) {
			stale = append(stale, name)
		}
	}
	g.Expect(map[string][]string{
		"used, although a comment says that the story does not use it":                                                 used,
		`not used: remove it from config, or write next to the rule "Not in the story: VERB RESOURCE, ... (purpose)."`: unused,
		"in a comment, but in no rule": stale,
	}).To(HaveEach(BeEmpty()))
}

// right is the permission for one verb on one resource.
type right struct {
	role, verb, group, resource string
	// namespace of the permission; all namespaces when empty.
	namespace string
	names     []string
}

// String returns the name that comments use: without the group, which is needed only for
// events.
func (r right) String() string {
	resource := r.resource
	if r.resource == "events" && r.group != "" {
		resource += "." + r.group
	}
	return r.role + ": " + r.verb + " " + resource
}

// allows reports whether the right permits a request.
func (r right) allows(asked controlplane.Request) bool {
	resource := asked.Resource
	if asked.Subresource != "" {
		resource += "/" + asked.Subresource
	}
	return asked.Verb == r.verb && asked.Group == r.group && resource == r.resource &&
		(r.namespace == "" || asked.Namespace == r.namespace) &&
		(len(r.names) == 0 || slices.Contains(r.names, asked.Name))
}

// rolesOfUsers are the roles that are not for the hub.
var rolesOfUsers = []string{"capstan-approver", "capstan-operator", "capstan-overrider", "capstan-promoter", "capstan-tenant", "capstan-viewer", "capstan-window-admin"}

// rightsOf returns the permissions of the hub in the manifests.
func rightsOf(t *testing.T, text string) []right {
	t.Helper()
	g := NewWithT(t)
	var all []right
	for _, o := range objects(t, text) {
		if (o.GetKind() != "ClusterRole" && o.GetKind() != "Role") || slices.Contains(rolesOfUsers, o.GetName()) {
			continue
		}
		var role rbacv1.Role
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role)).To(Succeed())
		for _, rule := range role.Rules {
			g.Expect(rule.NonResourceURLs).To(BeEmpty())
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						all = append(all, right{role.Name, verb, group, resource, role.Namespace, rule.ResourceNames})
					}
				}
			}
		}
	}
	g.Expect(all).NotTo(BeEmpty())
	return all
}

const excuse = "Not in the story:"

// brackets matches the purpose of a permission.
var brackets = regexp.MustCompile(`\([^()]*\)`)

// excuses returns the permissions that the story does not use according to a comment next
// to their rule, which has their purpose.
func excuses(t *testing.T) map[string]bool {
	t.Helper()
	g := NewWithT(t)
	listed := map[string]bool{}
	for _, name := range []string{"hub_role.yaml", "leader_election_role.yaml", "cluster-secrets/role.yaml", "pipeline-secrets/role.yaml", "backend-secrets/role.yaml",
		"../webhook/role.yaml", "../webhook/cluster_role.yaml"} {
		raw, err := os.ReadFile(path("config", "rbac", name))
		g.Expect(err).NotTo(HaveOccurred())
		var document yamlv3.Node
		g.Expect(yamlv3.Unmarshal(raw, &document)).To(Succeed())
		var role rbacv1.Role
		g.Expect(yaml.Unmarshal(raw, &role)).To(Succeed())
		rules, err := ruleNodes(&document)
		g.Expect(err).NotTo(HaveOccurred(), name)
		for _, rule := range rules {
			comment := strings.Join(strings.Fields(strings.ReplaceAll(rule.HeadComment, "#", " ")), " ")
			for _, part := range strings.Split(comment, excuse)[1:] {
				part = brackets.ReplaceAllString(part[:strings.LastIndex(part, ")")+1], ",")
				for one := range strings.SplitSeq(part, ",") {
					if one = strings.TrimSpace(one); one != "" {
						listed[role.Name+": "+one] = true
					}
				}
			}
		}
	}
	return listed
}

// ruleNodes are the rules of a role, with their comments.
func ruleNodes(document *yamlv3.Node) ([]*yamlv3.Node, error) {
	if len(document.Content) == 0 {
		return nil, errors.New("there is no document")
	}
	fields := document.Content[0].Content
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i].Value == "rules" {
			return fields[i+1].Content, nil
		}
	}
	return nil, fmt.Errorf("line %d: there are no rules", document.Line)
}
