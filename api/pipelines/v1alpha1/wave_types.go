package v1alpha1

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxStages is how many stages the waves of an environment may have in total.
const MaxStages = 20

// Wave is a part of an environment whose clusters get a revision before those of the next wave. A target belongs to the
// first wave that selects its cluster, or to the last wave if none does.
type Wave struct {
	// Name of the wave, unique in the environment.
	// +required
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+(-[a-z0-9]+)*$`
	Name string `json:"name"`

	// Selector of the labels of clusters. Only the last wave may have none, or an empty one: it gets the
	// rest.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Batches cuts the wave into so many parts, which follow each other as waves do. The name of a cluster
	// determines its part, so that a cluster that joins or leaves moves no other. The parts of a
	// wave "rest" are rest-1, rest-2 and so on. An environment has 20 parts and other waves at most.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	Batches int32 `json:"batches,omitempty"`

	// Soak is how long this wave, or each of its batches, must be healthy with a revision before the next
	// one gets it. The last wave may have it if it has batches.
	// +optional
	Soak *Soak `json:"soak,omitempty"`
}

// Stage says of which environment of the spec another one is a part. Only a Pipeline of WithStages or Shown has it.
// +kubebuilder:object:generate=false
type Stage struct {
	// Of is the environment as it is in the spec.
	Of *Environment
	// Environment of the spec, and Wave: the name of the wave, or of its batch.
	Environment, Wave string
	// First and Last are whether no stage is before it, or after it, in the environment.
	First, Last bool
	// Soak that the stage before requires; nil for none. SoakPath is its path in the spec.
	Soak     *Soak
	SoakPath string
	// Unknown is set if it is not known which clusters belong to the stage.
	Unknown bool
}

// DeepCopy exists for the generated code: a Stage is never changed, so that copies share it.
func (s *Stage) DeepCopy() *Stage { return s }

// StageName returns the name of a stage of an environment in the status and in Promotions.
func StageName(environment, wave string) string { return environment + "/" + wave }

// StageOf is a stage of the waves of an environment.
type StageOf struct {
	// Name of the wave, or of its batch.
	Name string
	// Wave is the index of the wave in the spec, and Batch that of its batch.
	Wave, Batch int
}

// Stages returns the stages of an environment, at most MaxStages; none if it has no waves.
func (e *Environment) Stages() []StageOf {
	var all []StageOf
	for i := range e.Waves {
		if e.Waves[i].Batches <= 1 {
			all = append(all, StageOf{e.Waves[i].Name, i, 0})
			continue
		}
		for b := range int(e.Waves[i].Batches) {
			all = append(all, StageOf{fmt.Sprintf("%s-%d", e.Waves[i].Name, b+1), i, b})
		}
	}
	return all[:min(len(all), MaxStages)]
}

// Base returns the name of the environment in the spec: a stage is a part of it.
func (e *Environment) Base() string {
	if e.Stage != nil {
		return e.Stage.Environment
	}
	return e.Name
}

// Path returns the path of environment i in the spec, such as spec.environments[2]; that of a stage is the one of its
// environment.
func (p *Pipeline) Path(i int) string {
	at := i
	for j := 1; j <= i; j++ {
		if s := p.Spec.Environments[j].Stage; s != nil && !s.First {
			at--
		}
	}
	return fmt.Sprintf("spec.environments[%d]", at)
}

// Find returns the index of an environment, or stage, by its name; -1 if there is none.
func (p *Pipeline) Find(name string) int {
	return slices.IndexFunc(p.Spec.Environments, func(e Environment) bool { return e.Name == name })
}

// WithStages returns the Pipeline in which each environment with waves is replaced by its stages, which are environments
// of their own: each has a part of the targets, its own agreement and its own promotions, and its source is the stage
// before it. of returns the targets of each stage; a stage without any is passed over. It returns true if it is not known which
// clusters belong to which stage. The first environment, into which nothing is promoted, has no stages.
//
// It is the Pipeline itself if no environment has waves.
func (p *Pipeline) WithStages(of func(*Environment, []StageOf) (targets [][]Target, unknown bool)) *Pipeline {
	if !slices.ContainsFunc(p.Spec.Environments[min(1, len(p.Spec.Environments)):], func(e Environment) bool { return len(e.Waves) > 0 }) {
		return p
	}
	c := *p
	c.Spec.Environments = nil
	for i := range p.Spec.Environments {
		env := &p.Spec.Environments[i]
		if i == 0 || len(env.Waves) == 0 {
			c.Spec.Environments = append(c.Spec.Environments, *env)
			continue
		}
		stages := env.Stages()
		targets, unknown := of(env, stages)
		begun := len(c.Spec.Environments)
		before := -1
		for k, s := range stages {
			if len(targets[k]) == 0 {
				continue
			}
			stage := *env
			stage.Name, stage.Waves, stage.Targets = StageName(env.Name, s.Name), nil, targets[k]
			stage.Stage = &Stage{Of: env, Environment: env.Name, Wave: s.Name, First: before < 0, Unknown: unknown}
			if before >= 0 {
				stage.Stage.Soak = env.Waves[before].Soak
				stage.Stage.SoakPath = fmt.Sprintf("%s.waves[%d].soak", p.Path(i), before)
				stage.Promotion = p.PromotionFor(env).approved()
			}
			c.Spec.Environments = append(c.Spec.Environments, stage)
			before = s.Wave
		}
		switch end := len(c.Spec.Environments); {
		case end > begun:
			c.Spec.Environments[end-1].Stage.Last = true
		default: // It has no targets at all.
			none := *env
			none.Waves, none.Targets = nil, nil
			c.Spec.Environments = append(c.Spec.Environments, none)
		}
	}
	return &c
}

// approved returns a promotion that needs no approval: the first wave had it.
func (p *Promotion) approved() *Promotion {
	if p == nil || !p.Manual {
		return p
	}
	c := *p
	c.Manual = false
	return &c
}
