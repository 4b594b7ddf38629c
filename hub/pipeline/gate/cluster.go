package gate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/window"
)

// ClusterWindow is a PromotionWindow that was parsed.
type ClusterWindow struct {
	named
	window       *window.Window
	namespaces   labels.Selector
	pipelines    labels.Selector
	environments []string
	// rollbacks is whether the window applies to rollbacks.
	rollbacks bool
	wrong     error
}

// clusterWindows are the ClusterWindows that select an environment. windows, named and wrong have the
// same order.
type clusterWindows struct {
	windows []*window.Window
	named   []named
	wrong   []error
}

func (c *clusterWindows) empty() bool { return c == nil || len(c.windows) == 0 }

// ParseWindow parses a PromotionWindow. One that is not valid never makes more promotions begin: of its
// selection, the parts that are not valid select everything, a Deny is always active, and an Allow never
// is.
func ParseWindow(w *capstanv1.PromotionWindow) *ClusterWindow {
	c := &ClusterWindow{
		named:        named{w.Name, w.Spec.Reason, w.Spec.TimeZone},
		environments: w.Spec.Environments,
		rollbacks:    blocksRollbacks(&w.Spec),
	}
	var wrong [3]error
	c.namespaces, wrong[0] = selector(w.Spec.NamespaceSelector, "spec.namespaceSelector")
	c.pipelines, wrong[1] = selector(w.Spec.PipelineSelector, "spec.pipelineSelector")
	var field *window.Error
	if c.window, wrong[2] = parseWindow(&w.Spec.WindowSpec); errors.As(wrong[2], &field) {
		wrong[2] = fmt.Errorf("spec.%s: %s", field.Field, field.Problem)
	}
	if c.wrong = errors.Join(wrong[:]...); c.wrong != nil {
		c.window = closedFor(w.Spec.Type)
	}
	return c
}

// blocksRollbacks returns whether a PromotionWindow applies to rollbacks. One that stops everything does, unless it
// says otherwise.
func blocksRollbacks(s *capstanv1.PromotionWindowSpec) bool {
	switch s.Rollbacks {
	case capstanv1.AllowRollbacks:
		return false
	case capstanv1.BlockRollbacks:
		return true
	}
	return s.Type != pipelinesv1.AllowWindow && s.Schedule == "" && s.From == "" && s.Until == ""
}

// closedFor returns a window that takes the place of one that is not valid.
func closedFor(kind pipelinesv1.WindowType) *window.Window {
	spec := window.Spec{Type: window.Deny}
	if kind == pipelinesv1.AllowWindow {
		spec = window.Spec{Type: window.Allow, Until: time.Unix(0, 0)}
	}
	w, err := window.Parse(spec)
	if err != nil {
		panic(err) // Both are valid.
	}
	return w
}

func selector(s *metav1.LabelSelector, path string) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Everything(), fmt.Errorf("%s: %w", path, err)
	}
	return parsed, nil
}

// Err returns what is invalid, with the path of each field; nil if the window is valid.
func (c *ClusterWindow) Err() error { return c.wrong }

// At returns whether the window is active at an instant, and when that changes next; zero if that is
// not known.
func (c *ClusterWindow) At(now time.Time) (active bool, change time.Time) { return c.window.At(now) }

// NeedsNamespace returns whether the window selects by the labels of namespaces.
func (c *ClusterWindow) NeedsNamespace() bool { return !c.namespaces.Empty() }

// Selects returns whether the window applies to promotions into an environment of a Pipeline whose
// namespace has the labels. The environment may have been removed from the Pipeline, and so may the
// Pipeline (nil), which is then selected by every pipelineSelector. A window that names an environment applies to all of its
// waves.
func (c *ClusterWindow) Selects(p *pipelinesv1.Pipeline, environment string, namespace labels.Set) bool {
	return c.namespaces.Matches(namespace) && (p == nil || c.pipelines.Matches(labels.Set(p.Labels))) &&
		(len(c.environments) == 0 || slices.ContainsFunc(c.environments, func(e string) bool {
			return e == environment || strings.HasPrefix(environment, pipelinesv1.StageName(e, ""))
		}))
}

// Within returns the rules with the windows that select an environment of a Pipeline, as Selects does.
func (r Rules) Within(windows []*ClusterWindow, p *pipelinesv1.Pipeline, environment string, namespace labels.Set) Rules {
	r.cluster, r.judged = &clusterWindows{}, &verdicts{}
	for _, w := range windows {
		if r.rollback && !w.rollbacks {
			continue
		}
		if w.Selects(p, environment, namespace) {
			r.cluster.windows = append(r.cluster.windows, w.window)
			r.cluster.named = append(r.cluster.named, w.named)
			r.cluster.wrong = append(r.cluster.wrong, w.wrong)
		}
	}
	return r
}

// judgeCluster returns the result for the PromotionWindows; nil if none selects the promotion. Without
// knowledge of them it is what the status of the promotion says.
func (r Rules) judgeCluster(f Facts) *Result {
	g := &Result{Name: capstanv1.GatePromotionWindows, Type: capstanv1.PromotionWindowGate}
	if r.cluster == nil {
		recorded := f.recorded(capstanv1.GatePromotionWindows)
		if recorded == nil {
			return nil
		}
		g.State, g.Reason, g.Message = recorded.State, recorded.Reason, recorded.Message
		if recorded.NextChangeTime != nil {
			g.Change = recorded.NextChangeTime.Time
		}
		return g
	}
	if r.cluster.empty() {
		return nil
	}
	v := once(&r.judged.of(f.Now).cluster, f.Now, r.cluster.windows)
	if v.Open {
		g.State, g.Reason, g.Message, g.Change = capstanv1.GateOpen, ReasonAllowed, "promotions are allowed at this time", v.Change
		return g
	}
	if by := r.cluster.named[v.By]; r.cluster.wrong[v.By] != nil {
		*g = invalid(g.Name, g.Type, fmt.Sprintf("PromotionWindow %q is not valid; its administrator has to correct it", by.name), r.cluster.wrong[v.By])
		return g
	}
	g.Change = v.Change
	g.close(r.cluster.named[v.By], r.cluster.windows[v.By].Type(), "PromotionWindow")
	return g
}

// recorded returns what the status of the promotion says about a gate; nil for nothing.
func (f Facts) recorded(gate string) *capstanv1.GateStatus {
	if f.Promotion == nil {
		return nil
	}
	i := slices.IndexFunc(f.Promotion.Status.Gates, func(g capstanv1.GateStatus) bool { return g.Name == gate })
	if i < 0 {
		return nil
	}
	return &f.Promotion.Status.Gates[i]
}

// SortWindows parses PromotionWindows, in the order of their names.
func SortWindows(all []capstanv1.PromotionWindow) []*ClusterWindow {
	parsed := make([]*ClusterWindow, len(all))
	for i := range all {
		parsed[i] = ParseWindow(&all[i])
	}
	slices.SortFunc(parsed, func(a, b *ClusterWindow) int { return strings.Compare(a.name, b.name) })
	return parsed
}
