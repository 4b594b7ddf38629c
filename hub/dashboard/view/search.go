package view

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// SearchPath is the page of the search over all kinds.
const SearchPath = "/search"

// maxHits is how many objects of a kind a search shows; the page of the kind shows all.
const maxHits = 10

// SearchFrame is the frame of the search over all kinds.
type SearchFrame struct {
	Search string
}

// Hits are the objects of one kind that match a search text.
type Hits struct {
	// Title of the group, and What its objects are, in the plural: "clusters".
	Title, What string
	N           int
	// Shown are the best ones, at most maxHits.
	Shown []Hit
	// All is the address of the page that shows all of them; empty when there is none.
	All string
}

// Hit is an object that matches a search text.
type Hit struct {
	// Name for users, and Kind where the title of the group does not say it.
	Name, Kind string
	// Link is empty when no page shows the object.
	Link string
	Mark Mark
	// Text says more about it.
	Text string
	// At is when it was created; zero where that does not matter.
	At time.Time
}

// Search returns the objects of all kinds that the viewer may see and that have all words of the search text in their
// names and states: first those with this name, then those whose name begins with it, then those with the words in
// their names, then the others; among these the worst come first.
func Search(f *Facts, scope Scope, q Query) Page {
	title := "Search"
	if q.Search != "" {
		title += ": " + q.Search
	}
	page := Page{Template: "search", Title: title, Frame: SearchFrame{Search: q.Search}}
	w := q.words()
	page.Blocks = hidden("results", scope.clusters(), scope.pipelines(), scope.promotions(), scope.instances(), scope.nodeGroups(), scope.backends())
	if len(w) == 0 {
		page.Blocks = append(page.Blocks, Block{ID: "search-help", List: "results", Template: "search-help"})
		return page
	}
	of := f.fleet(scope)
	known := of.known
	found := false
	for _, hits := range []Hits{
		of.clusterHits(w), f.pipelineHits(w, known, scope), f.promotionHits(w, scope), of.instanceHits(w), of.groupHits(w), f.backendHits(w, scope),
	} {
		if hits.N == 0 {
			continue
		}
		found = true
		if hits.All != "" {
			hits.All = Query{Search: q.Search}.At(hits.All)
		}
		page.Blocks = append(page.Blocks, Block{ID: "search/" + hits.Title, List: "results", Template: "search-hits", Data: hits})
	}
	if !found {
		page.Blocks = append(page.Blocks, Block{ID: "results-empty", List: "results", Template: "search-none", Data: SearchFrame{Search: q.Search}})
	}
	return page
}

// candidate is an object that matches, before it is known whether it is shown.
type candidate struct {
	rank rank
	tone Tone
	// at is the time of a promotion; the newest comes first.
	at              time.Time
	namespace, name string
	// index in the list of its kind.
	index int
}

func (c *candidate) compare(other *candidate) int {
	if c.rank != other.rank {
		return cmp.Compare(c.rank, other.rank)
	}
	if c.tone != other.tone {
		return worse(c.tone, other.tone)
	}
	if order := other.at.Compare(c.at); order != 0 {
		return order
	}
	return cmp.Or(cmp.Compare(c.namespace, other.namespace), cmp.Compare(c.name, other.name), cmp.Compare(c.index, other.index))
}

// best are the maxHits best candidates of n.
type best struct {
	n    int
	kept []candidate
}

func (b *best) add(c candidate) {
	b.n++
	at := len(b.kept)
	for at > 0 && c.compare(&b.kept[at-1]) < 0 {
		at--
	}
	if at == maxHits {
		return
	}
	if len(b.kept) == maxHits {
		b.kept = b.kept[:maxHits-1]
	}
	b.kept = slices.Insert(b.kept, at, c)
}

// hits returns the best candidates with what hit says about each, by its index.
func (b *best) hits(title, what, all string, hit func(index int) Hit) Hits {
	h := Hits{Title: title, What: what, N: b.n, All: all}
	for _, c := range b.kept {
		h.Shown = append(h.Shown, hit(c.index))
	}
	return h
}

func (f *fleet) clusterHits(w words) Hits {
	var b best
	rows := f.rows()
	for i := range rows {
		if r := &rows[i]; w.in(r.texts()...) {
			b.add(candidate{rank: w.rank(r.Cluster.Name, r.Cluster.String()), tone: r.Mark.Tone, namespace: r.Cluster.Namespace, name: r.Cluster.Name, index: i})
		}
	}
	return b.hits("Clusters", "clusters", ClustersPath, func(i int) Hit {
		r := &rows[i]
		return Hit{Name: r.Cluster.String(), Kind: r.Cluster.Kind, Link: r.Link, Mark: r.Mark, Text: joined(r.Reason, r.Version)}
	})
}

func (f *Facts) pipelineHits(w words, known map[Cluster]standing, scope Scope) Hits {
	var b best
	for i := range f.Pipelines {
		p := &f.Pipelines[i]
		if scope.Pipelines.Has(p.Namespace) && w.pipeline(p) {
			b.add(candidate{rank: w.rank(p.Name, p.Namespace+"/"+p.Name), tone: f.row(p, known, scope).Mark.Tone, namespace: p.Namespace, name: p.Name, index: i})
		}
	}
	return b.hits("Pipelines", "Pipelines", PipelinesPath, func(i int) Hit {
		p := &f.Pipelines[i]
		return Hit{
			Name: p.Namespace + "/" + p.Name, Link: pipelinePath(p.Namespace, p.Name), Mark: f.row(p, known, scope).Mark,
			Text: joined(p.Spec.AppRef.Kind+" "+p.Spec.AppRef.Name, w.environment(p)),
		}
	})
}

// pipeline reports whether a Pipeline has the words: in its name, its application, the names of its environments and
// targets, and the revisions there.
func (w words) pipeline(p *pipelinesv1.Pipeline) bool {
	m := w.match()
	m.readName(p.Namespace, p.Name)
	m.read(p.Spec.AppRef.Kind)
	m.read(p.Spec.AppRef.Name)
	for e := range p.Spec.Environments {
		if m.all() {
			return true
		}
		env := &p.Spec.Environments[e]
		m.read(env.Name)
		for t := range env.Targets {
			if c := ClusterOf(env.Targets[t].ClusterRef, p.Namespace); !c.Local() {
				m.readName(c.Namespace, c.Name)
			}
		}
		eachRevision(p.Status.Environments[env.Name], func(revision string) bool {
			m.read(revision)
			return !m.all()
		})
	}
	return m.all()
}

// environment says in which environment a Pipeline has one of the words; empty if in none.
func (w words) environment(p *pipelinesv1.Pipeline) string {
	for e := range p.Spec.Environments {
		name := p.Spec.Environments[e].Name
		found := ""
		eachRevision(p.Status.Environments[name], func(revision string) bool {
			if w.any(revision) {
				found = name + ": " + revision
			}
			return found == ""
		})
		if found == "" && w.any(name) {
			found = "environment " + name
		}
		if found != "" {
			return found
		}
	}
	return ""
}

// any reports whether one of the words is in a text.
func (w words) any(text string) bool {
	return slices.ContainsFunc(w, func(word string) bool { return containsFold(text, word) })
}

// eachRevision calls do with the revisions of an environment until it returns false. Equal ones that follow each other,
// as in most fleets, are one.
func eachRevision(status *pipelinesv1.EnvironmentStatus, do func(revision string) bool) {
	if status == nil {
		return
	}
	last := ""
	if status.Agreed != nil {
		if last = status.Agreed.Revision; !do(last) {
			return
		}
	}
	for i := range status.Targets {
		if r := status.Targets[i].Revision; r != last {
			if last = r; !do(r) {
				return
			}
		}
	}
	if status.Promotion != nil {
		do(status.Promotion.Revision)
	}
}

func (f *Facts) promotionHits(w words, scope Scope) Hits {
	var b best
	for i := range f.Promotions {
		p := &f.Promotions[i]
		if scope.Promotions.Has(p.Namespace) && w.promotion(p) {
			b.add(candidate{
				rank: w.rank(p.Spec.Revision, p.Spec.Pipeline.Name, p.Name), tone: phaseMark(p.Status.Phase, stalled(p)).Tone, at: p.CreationTimestamp.Time,
				namespace: p.Namespace, name: p.Name, index: i,
			})
		}
	}
	return b.hits("Promotions", "promotions", PromotionsPath, func(i int) Hit {
		p := &f.Promotions[i]
		h := Hit{
			Name: p.Namespace + "/" + p.Spec.Pipeline.Name + " into " + p.Spec.Environment + ": " + p.Spec.Revision,
			Mark: phaseMark(p.Status.Phase, stalled(p)), Text: joined(p.Status.Reason, who(p), originText(p)), At: p.CreationTimestamp.Time,
		}
		if scope.Pipelines.Has(p.Namespace) {
			h.Link = pipelinePath(p.Namespace, p.Spec.Pipeline.Name) + "#" + entryID(p.Namespace, p.Name)
		} else {
			h.Link = Query{Search: p.Spec.Pipeline.Name + " " + p.Spec.Environment + " " + p.Spec.Revision, Namespace: p.Namespace}.At(PromotionsPath)
		}
		return h
	})
}

// promotion reports whether a promotion has the words: in its Pipeline, environment, revisions and state, the users who
// decided, and their reasons. A rollback has the word "rollback".
func (w words) promotion(p *capstanv1.Promotion) bool {
	m := w.match()
	m.readName(p.Namespace, p.Spec.Pipeline.Name)
	m.read(p.Spec.Environment)
	m.read(p.Spec.Revision)
	m.read(p.Name)
	m.read(p.Status.Reason)
	if m.all() {
		return true
	}
	if p.Spec.From != nil {
		for _, r := range p.Spec.From.Revisions {
			m.read(r)
		}
	}
	m.read(phaseMark(p.Status.Phase, stalled(p)).Word)
	m.read(who(p))
	m.read(originText(p))
	return m.all()
}

func (f *fleet) instanceHits(w words) Hits {
	var b best
	for i := range f.Instances {
		o := &f.Instances[i]
		if f.scope.seesInstances(o) && w.instance(o) {
			b.add(candidate{rank: w.rank(o.Name, o.Namespace+"/"+o.Name, o.Instance), tone: f.machineMark(o).Tone, namespace: o.Namespace, name: o.Name, index: i})
		}
	}
	return b.hits("Machines and pools", "machines and pools", InstancesPath, func(i int) Hit {
		o := &f.Instances[i]
		return Hit{
			Name: o.Namespace + "/" + o.Name, Kind: o.Kind, Link: f.linkTo(owned(o.Namespace, o.Cluster)), Mark: f.machineMark(o),
			Text: joined(o.Instance, "cluster "+o.Cluster),
		}
	})
}

// instance reports whether a machine or pool has the words: in its name, kind, cluster, state and instance ID.
func (w words) instance(o *Instances) bool {
	m := w.match()
	m.readName(o.Namespace, o.Name)
	for _, text := range []string{o.Kind, o.Cluster, o.State, o.Instance} {
		m.read(text)
	}
	return m.all()
}

func (f *fleet) groupHits(w words) Hits {
	var b best
	for i := range f.NodeGroups {
		o := &f.NodeGroups[i]
		m := w.match()
		if !f.scope.seesGroup(*o) {
			continue
		}
		m.readName(o.Namespace, o.Name)
		for _, text := range []string{o.Kind, o.Cluster, groupMark(*o).Word} {
			m.read(text)
		}
		if m.all() {
			b.add(candidate{rank: w.rank(o.Name, o.Namespace+"/"+o.Name), tone: groupMark(*o).Tone, namespace: o.Namespace, name: o.Name, index: i})
		}
	}
	return b.hits("Node groups", "node groups", "", func(i int) Hit {
		o := &f.NodeGroups[i]
		return Hit{
			Name: o.Namespace + "/" + o.Name, Kind: o.Kind, Link: f.linkTo(owned(o.Namespace, o.Cluster)), Mark: groupMark(*o),
			Text: joined(strconv.FormatInt(o.Ready, 10)+" of "+strconv.FormatInt(o.Desired, 10)+" ready", "cluster "+o.Cluster),
		}
	})
}

func (f *Facts) backendHits(w words, scope Scope) Hits {
	var b best
	for i := range f.Backends {
		o := &f.Backends[i]
		if scope.Backends.Has(o.Namespace) && w.backend(o) {
			b.add(candidate{rank: w.rank(o.Name, o.Namespace+"/"+o.Name), tone: backendMark(o).Tone, namespace: o.Namespace, name: o.Name, index: i})
		}
	}
	return b.hits("Event backends", "event backends", BackendsPath, func(i int) Hit {
		o := &f.Backends[i]
		name := o.Namespace + "/" + o.Name
		return Hit{Name: name, Link: Query{Search: name}.At(BackendsPath), Mark: backendMark(o), Text: o.Spec.Type}
	})
}

// backend reports whether an EventingBackend has the words: in its name, type and state. Its configuration is not searched.
func (w words) backend(o *eventingv1.EventingBackend) bool {
	m := w.match()
	m.readName(o.Namespace, o.Name)
	m.read(o.Spec.Type)
	m.read(backendMark(o).Word)
	return m.all()
}

// joined joins the texts that are not empty.
func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(t string) bool { return t == "" }), ", ")
}
