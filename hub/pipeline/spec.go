package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/hub/pipeline/verify"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/strategy"
)

// problem is an error in a spec. The CRD accepts it, because weave's CRD did.
type problem struct {
	// environment of the spec that has the problem, with all of its stages; empty for the whole Pipeline.
	environment string
	message     string
	// gates: it is in the gates of the environment. They do not apply to rollbacks.
	gates bool
}

// appKind returns the kind of the Pipeline's application. Each cluster determines the
// version.
func appKind(p *pipelinesv1.Pipeline) (schema.GroupKind, error) {
	gv, err := schema.ParseGroupVersion(p.Spec.AppRef.APIVersion)
	if err != nil {
		return schema.GroupKind{}, fmt.Errorf("spec.appRef.apiVersion %q is not of the form group/version", p.Spec.AppRef.APIVersion)
	}
	return schema.GroupKind{Group: gv.Group, Kind: p.Spec.AppRef.Kind}, nil
}

// problems of a Pipeline's spec, in the order of the spec. staged has the clusters that it selects, in their stages.
func (r *Reconciler) problems(p, staged *pipelinesv1.Pipeline) []problem {
	var found []problem
	whole := func(format string, args ...any) {
		found = append(found, problem{message: fmt.Sprintf(format, args...)})
	}

	if kind, err := appKind(p); err != nil {
		whole("%v", err)
	} else if !slices.Contains(r.AppKinds, kind) {
		whole("spec.appRef: the kind %s is not allowed; use one of %s, or have the administrator add it to --app-kinds", kind, kinds(r.AppKinds))
	}
	if p.Spec.AppRef.Name == "" {
		whole("spec.appRef.name is empty: set it to the name of the application")
	}
	if len(p.Spec.Environments) == 0 {
		whole("spec.environments is empty: name at least one environment")
	}
	seen := map[string]bool{}
	name := func(name, path string) {
		if seen[name] {
			whole("%s: the name %q is used twice; give each environment, wave and batch a different name", path, name)
		}
		seen[name] = true
	}
	targets := map[string]int{}
	for i := range staged.Spec.Environments {
		targets[staged.Spec.Environments[i].Base()] += len(staged.Spec.Environments[i].Targets)
	}
	for i := range p.Spec.Environments {
		env := &p.Spec.Environments[i]
		if env.Name == "" {
			whole("%s.name is empty: set a name", p.Path(i))
		} else {
			name(env.Name, p.Path(i))
		}
		for _, s := range env.Stages() { // Also of those without clusters: they may get some.
			name(pipelinesv1.StageName(env.Name, s.Name), fmt.Sprintf("%s.waves[%d]", p.Path(i), s.Wave))
		}
		if part := partOf(p, env.Name); part != "" {
			whole("%s: %q is the name of environment %q with the part %s: a marker in Git could mean either; rename one of them", p.Path(i), env.Name, strings.TrimSuffix(env.Name, ":"+string(part)), part)
		}
		switch n := targets[env.Name]; {
		case n == 0:
			found = append(found, problem{environment: env.Name, message: fmt.Sprintf("environment %q has no targets: nothing is promoted into it or the environments after it; add a target, or label the clusters that it is to select", env.Name)})
		case n > pipelinesv1.MaxTargets && (env.Selects() || len(env.Waves) > 0):
			found = append(found, problem{environment: env.Name, message: fmt.Sprintf("environment %q has %d targets, and may have %d: select fewer clusters, or divide them among several Pipelines", env.Name, n, pipelinesv1.MaxTargets)})
		}
		if err := quorum.For(p, i).Err(); err != nil {
			found = append(found, problem{environment: env.Name, message: fmt.Sprintf("environment %q runs no revision: %v", env.Name, err)})
		}
		for j := range env.Targets {
			if err := r.invalidTarget(p, env, &env.Targets[j]); err != nil {
				found = append(found, problem{environment: env.Name, message: err.Error()})
			}
		}
		if i == 0 {
			if env.Gates != nil {
				found = append(found, problem{environment: env.Name, message: fmt.Sprintf("environment %q is the first, and nothing is promoted into it: move spec.environments[0].gates to the environment that is promoted into", env.Name)})
			}
			if env.Verification != nil {
				found = append(found, problem{environment: env.Name, message: fmt.Sprintf("environment %q is the first, and nothing is promoted into it: move spec.environments[0].verification to an environment that is promoted into", env.Name)})
			}
			if len(env.Waves) > 0 {
				found = append(found, problem{environment: env.Name, message: fmt.Sprintf("environment %q is the first, and nothing is promoted into it: move spec.environments[0].waves to an environment that is promoted into", env.Name)})
			}
			continue
		}
		if _, err := waveSelectors(env, p.Path(i)); err != nil {
			found = append(found, problem{environment: env.Name, message: fmt.Sprintf("nothing is promoted into environment %q: %v", env.Name, err)})
		}
		if err := gate.WavesError(env, p.Path(i)); err != nil {
			found = append(found, problem{environment: env.Name, message: fmt.Sprintf("nothing but a rollback is promoted into environment %q: %v", env.Name, err), gates: true})
		}
		if err := verify.For(p, i).Err(); err != nil {
			found = append(found, problem{environment: env.Name, message: fmt.Sprintf("nothing is promoted into environment %q: %v", env.Name, err)})
		}
		if err := decision.RollbackFor(p, i).Err(); err != nil {
			found = append(found, problem{environment: env.Name, message: fmt.Sprintf("nothing is promoted into environment %q: %v", env.Name, err)})
		}
		if verification := p.VerificationFor(env); verification != nil {
			for _, err := range r.unknownEndpoints(p, verification.Checks, pathOf(p, i, "verification", env.Verification != nil)) {
				found = append(found, problem{environment: env.Name, message: fmt.Sprintf("nothing is promoted into environment %q: %v", env.Name, err)})
			}
		}
		if gates := p.GatesFor(env); gates != nil {
			for _, err := range r.unknownEndpoints(p, gates.Checks, pathOf(p, i, "gates", env.Gates != nil)) {
				found = append(found, problem{environment: env.Name, message: fmt.Sprintf("nothing but a rollback is promoted into environment %q: %v", env.Name, err), gates: true})
			}
		}
		rules := gate.For(p, i)
		for _, err := range rules.Errors() {
			what, ofGates := "nothing but a rollback", err != rules.RejectError() //nolint:errorlint // The same one.
			if !ofGates {
				what = "nothing"
			}
			found = append(found, problem{environment: env.Name, message: fmt.Sprintf("%s is promoted into environment %q: %v", what, env.Name, err), gates: ofGates})
		}
		if promotion := p.PromotionFor(env); promotion != nil {
			if wrong := strategy.Check(promotion.Strategy); wrong != "" {
				found = append(found, problem{environment: env.Name, message: fmt.Sprintf("the promotion into environment %q cannot be carried out: in strategy, %s", env.Name, wrong)})
			}
		}
	}
	return found
}

// partOf returns a part of a revision if the name of an environment is the name of another one with that part, as
// markers in Git have it.
func partOf(p *pipelinesv1.Pipeline, name string) revision.Part {
	for _, part := range revision.Parts {
		if base, ok := strings.CutSuffix(name, ":"+string(part)); ok && slices.ContainsFunc(p.Spec.Environments, func(e pipelinesv1.Environment) bool { return e.Name == base }) {
			return part
		}
	}
	return ""
}

// unknownEndpoints returns an error for each check whose endpoint the Pipeline may not use. path is that of what has
// the checks.
func (r *Reconciler) unknownEndpoints(p *pipelinesv1.Pipeline, checks []pipelinesv1.Check, path string) []error {
	if r.CheckEndpoint == nil {
		return nil
	}
	var all []error
	for j := range checks {
		if prometheus := checks[j].Prometheus; prometheus != nil {
			if err := r.CheckEndpoint(prometheus.Endpoint, p.Namespace); err != nil {
				all = append(all, fmt.Errorf("%s.checks[%d].prometheus.endpoint (check %q): %w", path, j, checks[j].Name, err))
			}
		}
	}
	return all
}

// pathOf returns the path of a part of the spec that an environment may have as its own.
func pathOf(p *pipelinesv1.Pipeline, i int, part string, own bool) string {
	if own {
		return p.Path(i) + "." + part
	}
	return "spec." + part
}

// errInvalidTarget is the class of errors in the spec of one target.
var errInvalidTarget = errors.New("invalid target")

// invalidTarget returns why a target may not be used; nil if it may. The error has its index in the environment.
func (r *Reconciler) invalidTarget(p *pipelinesv1.Pipeline, env *pipelinesv1.Environment, t *pipelinesv1.Target) error {
	at := func() string {
		if j := slices.Index(env.Targets, *t); j >= 0 {
			return fmt.Sprintf("targets[%d]", j)
		}
		return "a target" // The status had it.
	}
	if t.Namespace == "" {
		return fmt.Errorf("environment %q: %w: %s.namespace is empty: set the application's namespace", env.Name, errInvalidTarget, at())
	}
	if selects(t) {
		if _, err := r.selector(p, t); err != nil {
			return fmt.Errorf("environment %q: %w: %s: %w", env.Name, errInvalidTarget, at(), err)
		}
		return nil
	}
	if !r.NoCrossNamespaceRefs {
		return nil
	}
	if t.ClusterRef == nil {
		if t.Namespace == p.Namespace {
			return nil
		}
		return fmt.Errorf("environment %q: %w: %s is namespace %s of the management cluster, where --no-cross-namespace-refs allows only the Pipeline's own namespace %s; set %s.namespace to %s, add a clusterRef, or move the Pipeline to %s",
			env.Name, errInvalidTarget, at(), t.Namespace, p.Namespace, at(), p.Namespace, t.Namespace)
	}
	if ref := reference(p, t); ref.Namespace != p.Namespace {
		return fmt.Errorf("environment %q: %w: %s is in %s %s/%s, but --no-cross-namespace-refs allows only clusters of the Pipeline's own namespace %s; move the Pipeline or the cluster",
			env.Name, errInvalidTarget, at(), ref.Kind, ref.Namespace, ref.Name, p.Namespace)
	}
	return nil
}

func kinds(allowed []schema.GroupKind) string {
	names := make([]string, len(allowed))
	for i, k := range allowed {
		names[i] = k.String()
	}
	return strings.Join(names, ", ")
}

// ofEnvironmentProblems returns the problems of an environment.
func ofEnvironmentProblems(found []problem, environment string) []problem {
	var all []problem
	for _, f := range found {
		if f.environment == environment {
			all = append(all, f)
		}
	}
	return all
}

// beyondGates returns whether a problem is not one of gates: no rollback is possible either.
func beyondGates(found []problem) bool {
	return slices.ContainsFunc(found, func(p problem) bool { return !p.gates })
}

// concernsAll returns whether a problem concerns the whole Pipeline.
func concernsAll(found []problem) bool {
	return slices.ContainsFunc(found, func(p problem) bool { return p.environment == "" })
}

func messages(found []problem) string {
	all := make([]string, len(found))
	for i, p := range found {
		all[i] = p.message
	}
	return shorten(all)
}
