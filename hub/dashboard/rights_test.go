package dashboard

import (
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-hub/capstan/hub/useraction"
)

// shownKinds are the kinds that pages show, each with the permission to list it. For each kind, a tenant has an object or a text
// that no other kind shows: "MARK-only-KIND".
var shownKinds = map[string]rbacv1.PolicyRule{
	"connections": listing("capstan.dev", "clusterconnections"),
	"clusters":    listing("cluster.x-k8s.io", "clusters"),
	"gitops":      listing("gitops.weave.works", "gitopsclusters"),
	"pipelines":   listing("pipelines.weave.works", "pipelines"),
	"promotions":  listing("capstan.dev", "promotions"),
	"events":      listing("events.k8s.io", "events"),
	"backends":    listing("eventing.kyma-project.io", "eventingbackends"),
	"groups":      listing("cluster.x-k8s.io", "machinedeployments", "machinepools"),
	"sets":        listing("cluster.x-k8s.io", "machinesets"),
	"machines":    listing("infrastructure.cluster.x-k8s.io", "awsmachines", "awsmachinepools"),
	"managed":     listing("infrastructure.cluster.x-k8s.io", "awsmanagedmachinepools", "rosamachinepools"),
}

// reassuring are texts that say that there is nothing, or that all is well, by the kind that a viewer must see to read them.
var reassuring = map[string]string{
	"connections": `There is no cluster|No cluster exists yet|All \d+ clusters well|cluster, well|No problem in|Nothing waits for you`,
	"pipelines":   `No Pipeline exists yet|No Pipeline has a target`,
	"promotions":  `No revision was promoted`,
	"backends":    `No EventingBackend`,
	"machines":    `No machine is leaving|No AWSMachine`,
	"managed":     `No machine is leaving|No AWSMachine`,
	"groups":      `No MachineDeployment`,
	"events":      `No event from AWS|No Event in the last hour`,
}

func listing(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"list"}}
}

// addresses are those of all pages, with the objects of two tenants and with filters.
func addresses(t *testing.T, tenants ...*tenant) (all []string) {
	t.Helper()
	queries := []url.Values{{}}
	for _, n := range tenants {
		for key, value := range map[string]string{"q": n.mark, "namespace": n.namespace, "environment": n.name("env-1"), "reason": n.name("refused"), "group": "label:" + n.name("label")} {
			queries = append(queries, url.Values{key: {value}})
		}
	}
	for key, values := range map[string][]string{
		"group": {"state", "reason", "namespace", "label:team", "cause"}, "tab": {"attention", "waiting", "progress", "failed", "done", "namespaces"}, "sort": {"name", "since"},
		"state": {"Unreachable", "Failed", "Not ready", "spot-interruption-terminate"}, "within": {"24h"}, "q": {"1.1.0", "spot", "MachineSet"},
	} {
		for _, value := range values {
			queries = append(queries, url.Values{key: {value}})
		}
	}
	for _, kind := range pages {
		if kind.parts == 0 {
			for _, q := range queries {
				all = append(all, strings.TrimSuffix("/"+kind.name+"?"+q.Encode(), "?"))
			}
			continue
		}
		for _, n := range tenants {
			own := n.pagesOf(kind)
			if len(own) == 0 {
				t.Fatalf("this test has no object for the page %s/%v: add one to pagesOf", kind.name, kind.holders())
			}
			all = append(all, own...)
		}
	}
	return all
}

// pagesOf returns the addresses of the tenant's objects that have a page.
func (n *tenant) pagesOf(kind pageKind) (all []string) {
	pipelines := []string{"pipeline", "broken", "gated", "only-pipelines"}
	switch {
	case kind.name == "clusters":
		for _, of := range [][]string{{"Cluster", "capi"}, {"Cluster", "only-clusters"}, {"Cluster", "only-connections"}, {"GitopsCluster", "alias"}, {"GitopsCluster", "only-gitops"}} {
			all = append(all, "/clusters/"+of[0]+"/"+n.namespace+"/"+n.name(of[1]))
		}
	case kind.name == "pipelines" && kind.parts == 2:
		for _, of := range pipelines {
			all = append(all, "/pipelines/"+n.namespace+"/"+n.name(of))
		}
	case kind.name == "pipelines", kind.name == "promotions":
		of := []string{n.name("pipeline"), n.name("broken"), n.name("gated")}
		if kind.name == "promotions" {
			of = []string{n.name("pipeline-1"), n.name("pipeline-3"), n.name("broken-1"), n.name("gated-1")}
		}
		for _, name := range of {
			for _, action := range useraction.All() {
				address := "/" + kind.name + "/" + n.namespace + "/" + name + "/" + action.Name
				if kind.parts == 3 {
					all = append(all, address)
					continue
				}
				all = append(all, address+"/"+rightsGate, address+"/"+n.name("env-1"))
			}
		}
	}
	return all
}

// person is a user with a session.
type person struct {
	*browser
	name, token string
	// kinds that the user may list.
	kinds []string
}

// acting are the permissions of all actions.
var acting = []rbacv1.PolicyRule{
	{APIGroups: []string{"capstan.dev"}, Resources: []string{"promotions"}, Verbs: []string{"approve", "patch", "override"}},
	{APIGroups: []string{"capstan.dev"}, Resources: []string{"promotionrequests"}, Verbs: []string{"create"}},
	{APIGroups: []string{"pipelines.weave.works"}, Resources: []string{"pipelines"}, Verbs: []string{"patch"}},
}

// join signs in a user who may list kinds in some namespaces; "" stands for all.
func (w *world) join(name string, kinds []string, namespaces ...string) *person {
	w.t.Helper()
	var rules []rbacv1.PolicyRule
	for _, kind := range kinds {
		rules = append(rules, shownKinds[kind])
	}
	for _, namespace := range namespaces {
		if namespace != "" {
			w.may(namespace, w.subject(name), rules...)
			continue
		}
		role := metav1.ObjectMeta{Name: name + "-" + w.apps}
		w.Expect(w.c.Create(w.t.Context(), &rbacv1.ClusterRole{ObjectMeta: role, Rules: rules})).To(Succeed())
		w.Expect(w.c.Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: role, Subjects: []rbacv1.Subject{w.subject(name)}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		})).To(Succeed())
		w.granted("", w.subject(name), rules...)
	}
	p := &person{browser: w.browser(), name: name, token: w.account(name), kinds: kinds}
	w.enter(p.browser, p.token)
	return p
}

// enter signs in, when the limit of attempts permits it.
func (w *world) enter(b *browser, token string) {
	w.t.Helper()
	w.clock.step(signInEvery)
	w.Expect(b.signIn(token).Code).To(Equal(303))
}

var perSession = regexp.MustCompile(`(?s)^.*(<title>[^<]*</title>).*<main[^>]*>|<input[^>]*name="csrf"[^>]*>|</main>.*$`)

// shown returns what a user reads on a page: its title and its main part, without the token of the form.
func (p *person) shown(address string) (code int, text string) {
	p.w.t.Helper()
	a := p.get(address)
	return a.Code, perSession.ReplaceAllString(a.Body, "$1")
}

// calls are requests to all endpoints of the API.
func calls(tenants ...*tenant) (all []string) {
	for _, e := range apiEndpoints {
		all = append(all, e.Path)
		for _, n := range tenants {
			all = append(all, e.Path+"?"+url.Values{apiNamespace: {n.namespace}}.Encode(), e.Path+"?"+url.Values{apiNamespace: {n.namespace}, apiPipeline: {n.name("pipeline")}}.Encode())
		}
	}
	return all
}

// read returns all that a user can read, by address.
func (p *person) read(pages, api []string) map[string]string {
	p.w.t.Helper()
	all := map[string]string{}
	for _, address := range pages {
		code, text := p.shown(address)
		all[address] = fmt.Sprintf("%d %s", code, text)
	}
	for _, address := range api {
		a := p.call("GET", address, p.token)
		all[address] = fmt.Sprintf("%d %s", a.Code, a.Body)
	}
	return all
}

// A user sees exactly what the API server permits the user to list. With objects of another tenant, every page, search and
// answer of the API is what it is without them; what a user sees of a kind depends on the permission for this kind.
func TestRightsOnEveryPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	w.options.Objects, w.options.Machines = standbyObjects(t, w), w.options.Client
	w.serve()
	kinds := slices.Sorted(maps.Keys(shownKinds))
	a := w.settle(w.apps, "alpha")
	b := &tenant{world: w, namespace: w.fleet, mark: "zulu"} // Its objects are created later.
	all, one, nobody := w.join("all", kinds, ""), w.join("one", kinds, w.apps), w.join("nobody", nil)
	users := []*person{one, nobody}
	for _, kind := range kinds {
		users = append(users, w.join("only-"+kind, []string{kind}, w.apps))
	}
	actor := w.join("actor", []string{"pipelines"}, w.apps) // Without the permission to list what the actions are on.
	w.may(w.apps, w.subject("actor"), acting...)
	w.enter(actor.browser, actor.token) // This forgets what was denied.
	users = append(users, actor)
	pages, api := addresses(t, a, b), calls(a, b)
	w.complete(all, a)
	now := w.clock.Now()
	w.clock.step(now.Truncate(time.Hour).Add(time.Hour).Sub(now)) // Until the next minute no picture changes with the time.
	before := map[*person]map[string]string{}
	for _, p := range users {
		before[p] = p.read(pages, api)
		p.checkKinds(before[p], kinds)
	}
	b = w.settle(w.fleet, "zulu")
	w.complete(all, b)
	for _, p := range users {
		after := p.read(pages, api)
		p.follow(after)
		for _, address := range slices.Concat(pages, api) {
			if after[address] != before[p][address] {
				t.Errorf("%s sees that another tenant has objects at %s:\n%s", p.name, address, changedLine(before[p][address], after[address]))
			}
			if !strings.Contains(address, b.mark) && !strings.Contains(address, b.namespace) {
				w.Expect(after[address]).NotTo(Or(ContainSubstring(b.mark), ContainSubstring(b.namespace)), "%s at %s", p.name, address)
			}
		}
	}
	for _, address := range slices.Concat(pages, api) { // The same addresses show the objects to a user who may list them.
		if strings.Contains(address, a.namespace+"/"+a.mark) && strings.HasPrefix(before[one][address], "200") {
			theirs := strings.NewReplacer(a.namespace, b.namespace, a.mark, b.mark).Replace(address)
			code, text := all.shown(theirs)
			w.Expect(code).To(Equal(200), theirs)
			w.Expect(text).To(ContainSubstring(b.mark), theirs)
		}
	}
}

// complete waits until a user who may see everything sees all objects of a tenant.
func (w *world) complete(all *person, n *tenant) {
	w.t.Helper()
	for _, address := range []string{"/", "/clusters?namespace=" + n.namespace, "/pipelines", "/promotions", "/delivery", "/instances", "/backends", "/search?q=" + n.mark} {
		w.Eventually(func() string {
			w.reread()
			_, text := all.shown(address)
			return text
		}, patience).Should(ContainSubstring(n.mark), address)
	}
	for kind := range shownKinds {
		w.Eventually(func() string {
			w.reread()
			return strings.Join([]string{all.get("/search?q=" + n.name("only-"+kind)).Body, all.get("/pipelines/" + n.namespace + "/" + n.name("pipeline")).Body, all.get("/instances").Body}, "")
		}, patience).Should(MatchRegexp(`(?s)<main.*` + n.name("only-"+kind) + `.*</main>`))
	}
}

// reread makes the dashboard read all objects and machines again, without a step of the clock.
func (w *world) reread() {
	s := w.server.source
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedObjects, s.lockedMachinesAt = nil, time.Time{}
}

// checkKinds checks that a user sees the objects of each kind exactly if the user may list the kind, and that no page reassures
// a user who may not see what it is about.
func (p *person) checkKinds(read map[string]string, kinds []string) {
	p.w.t.Helper()
	for _, kind := range kinds {
		may := slices.Contains(p.kinds, kind)
		var at []string
		for address, text := range read {
			if strings.Contains(text, "alpha-only-"+kind) {
				at = append(at, address)
			}
			if of := reassuring[kind]; of != "" && !may {
				if found := regexp.MustCompile(of).FindString(text); found != "" {
					p.w.t.Errorf("%s, who may not list %s, reads %q at %s", p.name, kind, found, address)
				}
			}
		}
		slices.Sort(at)
		switch {
		case may && len(at) == 0:
			p.w.t.Errorf("%s sees no %s", p.name, kind)
		case !may && len(at) > 0:
			p.w.t.Errorf("%s, who may not list %s, sees them at %s", p.name, kind, at)
		}
	}
}

var linked = regexp.MustCompile(`href="(/[^"#]*)`)

// follow checks that a user may open all pages to which the pages of the user link.
func (p *person) follow(read map[string]string) {
	p.w.t.Helper()
	from := map[string]string{}
	for address, text := range read {
		for _, link := range linked.FindAllStringSubmatch(text, -1) {
			from[html.UnescapeString(link[1])] = address
		}
	}
	p.w.Expect(from).NotTo(BeEmpty())
	for link, address := range from {
		if code := p.get(link).Code; code != http.StatusOK {
			p.w.t.Errorf("%s: the page %s links to %s, which answers %d", p.name, address, link, code)
		}
	}
}

// changedLine returns the first line in which two texts differ, of each.
func changedLine(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(x), len(y)) {
		if i >= len(x) || i >= len(y) || x[i] != y[i] {
			return fmt.Sprintf("- %s\n+ %s", strings.Join(x[min(i, len(x)):min(i+1, len(x))], ""), strings.Join(y[min(i, len(y)):min(i+1, len(y))], ""))
		}
	}
	return ""
}
