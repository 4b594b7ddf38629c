package decision

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// promotionInto makes a Promotion as the hub writes it.
func promotionInto(env, source string, number, sequence int64, revision string) capstanv1.Promotion {
	return capstanv1.Promotion{Spec: capstanv1.PromotionSpec{
		Environment: env, Number: number, Revision: revision,
		Source: capstanv1.PromotionSource{Environment: source, Sequence: sequence}, Strategy: notify.Strategy,
	}}
}

func TestQuestionOf(t *testing.T) {
	pipeline := func(edit ...func(*pipelinesv1.Pipeline)) *pipelinesv1.Pipeline {
		p := &pipelinesv1.Pipeline{
			Spec: pipelinesv1.PipelineSpec{
				Environments: []pipelinesv1.Environment{{Name: "dev"}, {Name: "staging"}, {Name: "prod"}},
				Promotion:    &pipelinesv1.Promotion{Strategy: notify.Strategy},
			},
			Status: pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{
				"dev":     {Agreed: agreed("1.1", 2)},
				"staging": {Agreed: agreed("1.1", 5), LastPromotion: 4},
			}},
		}
		for _, e := range edit {
			e(p)
		}
		return p
	}
	fleets := []Fleet{fleet(at("1.1")), fleet(at("1.1")), fleet(at("1.0"))}
	all := []capstanv1.Promotion{promotionInto("staging", "dev", 3, 2, "1.1"), promotionInto("prod", "staging", 1, 4, "1.0")}
	dev := Environment{Name: "dev", Fleet: fleets[0], Agreed: agreed("1.1", 2), Ledger: NewLedger(nil, 0)}
	dev.Intent = &notify
	staging := Environment{Name: "staging", Fleet: fleets[1], Agreed: agreed("1.1", 5), Intent: &notify, Ledger: NewLedger([]Entry{EntryOf(&all[0])}, 4)}
	prod := Environment{Name: "prod", Fleet: fleets[2], Intent: &notify, Ledger: NewLedger([]Entry{EntryOf(&all[1])}, 0)}
	for name, tc := range map[string]struct {
		p    *pipelinesv1.Pipeline
		i    int
		want Question
	}{
		"the second environment": {pipeline(), 1, Question{First: dev, Source: dev, Into: staging}},
		"the last environment":   {pipeline(), 2, Question{First: dev, Source: staging, Into: prod}},
		"suspended":              {pipeline(func(p *pipelinesv1.Pipeline) { p.Spec.Suspend = true }), 2, Question{Suspended: true, First: dev, Source: staging, Into: prod}},
		"a promotion of its own": {pipeline(func(p *pipelinesv1.Pipeline) {
			p.Spec.Environments[2].Promotion = &pipelinesv1.Promotion{Strategy: notify.Strategy, Manual: true}
		}), 2, Question{First: dev, Source: staging, Into: func() Environment { e := prod; e.Intent = &manual; return e }()}},
		"no promotion": {pipeline(func(p *pipelinesv1.Pipeline) { p.Spec.Promotion = nil }), 1, Question{
			First:  func() Environment { e := dev; e.Intent = nil; return e }(),
			Source: func() Environment { e := dev; e.Intent = nil; return e }(),
			Into:   func() Environment { e := staging; e.Intent = nil; return e }(),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(QuestionOf(tc.p, fleets, all, tc.i)).To(Equal(tc.want))
		})
	}
}

func TestNewestAndOutbound(t *testing.T) {
	g := NewWithT(t)
	all := []capstanv1.Promotion{
		promotionInto("staging", "dev", 9, 3, "c"), promotionInto("staging", "dev", 10, 4, "d"),
		promotionInto("prod", "staging", 2, 1, "b"), promotionInto("staging", "dev", 8, 2, "b"),
		promotionInto("staging", "dev", 30, 1, "a"), promotionInto("staging", "dev", 40, 1, "a"),
	}
	all[4].Spec.Pipeline.UID = "former"
	all[5].Spec.Pipeline.UID, all[5].Spec.App.Name = "another", "another"
	g.Expect(NewestOf("", all, "staging")).To(BeIdenticalTo(&all[1]), "not that of a former Pipeline")
	g.Expect(NewestOf("", all, "dev")).To(BeNil())
	g.Expect(Outbound(Line{}, all, "staging")).To(Equal([]Entry{EntryOf(&all[2])}))
	g.Expect(Outbound(Line{}, all, "prod")).To(BeEmpty())
	g.Expect(Outbound(Line{}, all, "dev")).To(HaveLen(4), "also that of the former Pipeline; not that of another application")
	g.Expect(LedgerOf(Line{}, all, "staging", 0).Next()).To(Equal(int64(11)))
	g.Expect(LedgerOf(Line{}, all, "staging", 12).Next()).To(Equal(int64(13)))
	g.Expect(LedgerOf(Line{UID: "new"}, all[4:], "staging", 0).Next()).To(Equal(int64(31)), "another application's numbers do not count")
}

// After an edit of the line, the newest promotion is compared with the candidate by where
// both came from.
func TestSameOrigin(t *testing.T) {
	// carried is a promotion that was carried out and ended.
	carried := func(p capstanv1.Promotion) capstanv1.Promotion {
		p.Status = capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, CarriedOutTime: &metav1.Time{Time: time.Unix(1, 0)}}
		return p
	}
	ofFormer := func(p capstanv1.Promotion) capstanv1.Promotion {
		p.Spec.Pipeline.UID = "former"
		return p
	}
	for name, tc := range map[string]struct {
		line   []string
		agreed map[string]*pipelinesv1.AgreedRevision
		all    []capstanv1.Promotion
		want   bool
	}{
		"an environment was inserted": {
			[]string{"dev", "staging", "prod"},
			map[string]*pipelinesv1.AgreedRevision{"dev": agreed("1.1", 2), "staging": agreed("1.1", 2)},
			[]capstanv1.Promotion{promotionInto("prod", "dev", 1, 2, "1.1"), carried(promotionInto("staging", "dev", 1, 2, "1.1"))},
			true,
		},
		"inserted, and the first environment is ahead": {
			[]string{"dev", "staging", "prod"},
			map[string]*pipelinesv1.AgreedRevision{"dev": agreed("1.2", 3), "staging": agreed("1.1", 2)},
			[]capstanv1.Promotion{promotionInto("prod", "dev", 1, 2, "1.1"), carried(promotionInto("staging", "dev", 1, 2, "1.1"))},
			true,
		},
		"inserted, and the revision came back": {
			[]string{"dev", "staging", "prod"},
			map[string]*pipelinesv1.AgreedRevision{"dev": agreed("1.1", 4), "staging": agreed("1.1", 2)},
			[]capstanv1.Promotion{promotionInto("prod", "dev", 1, 2, "1.1"), carried(promotionInto("staging", "dev", 1, 4, "1.1"))},
			false,
		},
		"inserted, and it had the revision already": {
			[]string{"dev", "staging", "prod"},
			map[string]*pipelinesv1.AgreedRevision{"dev": agreed("1.1", 2), "staging": agreed("1.1", 1)},
			[]capstanv1.Promotion{promotionInto("prod", "dev", 1, 2, "1.1")},
			true,
		},
		"an environment was removed": {
			[]string{"dev", "prod"},
			map[string]*pipelinesv1.AgreedRevision{"dev": agreed("1.1", 2)},
			[]capstanv1.Promotion{carried(promotionInto("staging", "dev", 1, 2, "1.1")), promotionInto("prod", "staging", 1, 5, "1.1")},
			true,
		},
		"removed, and the revision came back": {
			[]string{"dev", "prod"},
			map[string]*pipelinesv1.AgreedRevision{"dev": agreed("1.1", 4)},
			[]capstanv1.Promotion{carried(promotionInto("staging", "dev", 1, 2, "1.1")), promotionInto("prod", "staging", 1, 5, "1.1")},
			false,
		},
		"the source was renamed": {
			[]string{"dev", "stage", "prod"},
			map[string]*pipelinesv1.AgreedRevision{"dev": agreed("1.1", 2), "stage": agreed("1.1", 1)},
			[]capstanv1.Promotion{carried(promotionInto("staging", "dev", 1, 2, "1.1")), promotionInto("prod", "staging", 1, 5, "1.1")},
			true,
		},
		"the first environment was renamed": {
			[]string{"develop", "prod"},
			map[string]*pipelinesv1.AgreedRevision{"develop": agreed("1.1", 1)},
			[]capstanv1.Promotion{promotionInto("prod", "dev", 1, 2, "1.1")},
			true,
		},
		"renamed, and the revision came back": {
			[]string{"develop", "prod"},
			map[string]*pipelinesv1.AgreedRevision{"develop": agreed("1.1", 3)},
			[]capstanv1.Promotion{promotionInto("prod", "dev", 1, 2, "1.1")},
			false,
		},
		"two environments changed places": {
			[]string{"staging", "dev", "prod"},
			map[string]*pipelinesv1.AgreedRevision{"dev": agreed("1.1", 2), "staging": agreed("1.1", 5)},
			[]capstanv1.Promotion{carried(promotionInto("staging", "dev", 1, 2, "1.1")), promotionInto("prod", "staging", 1, 5, "1.1")},
			true,
		},
		"another revision": {
			[]string{"dev", "staging", "prod"},
			map[string]*pipelinesv1.AgreedRevision{"dev": agreed("1.2", 3), "staging": agreed("1.2", 3)},
			[]capstanv1.Promotion{promotionInto("prod", "dev", 1, 2, "1.1"), carried(promotionInto("staging", "dev", 2, 3, "1.2"))},
			false,
		},
		"the same source": {
			[]string{"dev", "prod"},
			map[string]*pipelinesv1.AgreedRevision{"dev": agreed("1.1", 4)},
			[]capstanv1.Promotion{promotionInto("prod", "dev", 1, 2, "1.1")},
			false,
		},
		"the Pipeline was re-created": {
			[]string{"dev", "prod"},
			map[string]*pipelinesv1.AgreedRevision{"dev": agreed("1.1", 1)},
			[]capstanv1.Promotion{ofFormer(promotionInto("prod", "dev", 1, 2, "1.1"))},
			true,
		},
		"re-created, and the revision came back": {
			[]string{"dev", "prod"},
			map[string]*pipelinesv1.AgreedRevision{"dev": agreed("1.1", 3)},
			[]capstanv1.Promotion{ofFormer(promotionInto("prod", "dev", 1, 2, "1.1"))},
			false,
		},
		"no promotion": {[]string{"dev", "prod"}, map[string]*pipelinesv1.AgreedRevision{"dev": agreed("1.1", 4)}, nil, false},
		"no agreement": {[]string{"dev", "prod"}, nil, []capstanv1.Promotion{promotionInto("prod", "qa", 1, 2, "1.1")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pipelinesv1.Pipeline{Status: pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{}}}
			for _, env := range tc.line {
				p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: env})
				p.Status.Environments[env] = &pipelinesv1.EnvironmentStatus{Agreed: tc.agreed[env]}
			}
			q := QuestionOf(p, make([]Fleet, len(tc.line)), tc.all, len(tc.line)-1)
			NewWithT(t).Expect(q.SameOrigin).To(Equal(tc.want))
		})
	}
}

// A rollback and a request hold the environment also when its source was inserted, removed, renamed or moved since.
func TestHeldBefore(t *testing.T) {
	// rolledBack is a rollback to 1.0 from 1.1, which came from a source.
	rolledBack := func(source string, sequence int64) []capstanv1.Promotion {
		bad, back := promotionInto("prod", source, 1, sequence, "1.1"), promotionInto("prod", source, 2, 0, "1.0")
		bad.Status = capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: string(Degraded)}
		back.Spec.RollbackOf, back.Spec.Hold = &capstanv1.RollbackReference{Number: 1}, &capstanv1.Hold{UntilSequence: sequence}
		back.Status.Phase = capstanv1.PhaseSucceeded
		return []capstanv1.Promotion{bad, back}
	}
	requested := promotionInto("prod", "staging", 2, 0, "0.9")
	requested.Spec.Request, requested.Spec.Hold = &capstanv1.RequestReference{UID: "uid"}, &capstanv1.Hold{UntilSequence: 5}
	type agreements = map[string]*pipelinesv1.AgreedRevision
	inTurn := promotionInto("prod", "staging", 3, 6, "1.2")
	intoStaging := func(sequence int64, revision string) capstanv1.Promotion {
		return promotionInto("staging", "dev", sequence, sequence, revision)
	}
	for name, tc := range map[string]struct {
		line   []string
		agreed agreements
		all    []capstanv1.Promotion
		want   bool
	}{
		"an environment was inserted":            {[]string{"dev", "staging", "prod"}, agreements{"staging": agreed("1.1", 1)}, append(rolledBack("dev", 2), intoStaging(2, "1.1")), true},
		"inserted, a newer revision":             {[]string{"dev", "staging", "prod"}, agreements{"staging": agreed("1.2", 1)}, append(rolledBack("dev", 2), intoStaging(3, "1.2")), false},
		"inserted, the revision came back":       {[]string{"dev", "staging", "prod"}, agreements{"staging": agreed("1.1", 3)}, append(rolledBack("dev", 2), intoStaging(4, "1.1")), false},
		"an environment was removed":             {[]string{"dev", "prod"}, agreements{"dev": agreed("1.1", 2)}, append(rolledBack("staging", 5), intoStaging(2, "1.1")), true},
		"removed, a newer revision":              {[]string{"dev", "prod"}, agreements{"dev": agreed("1.2", 3)}, append(rolledBack("staging", 5), intoStaging(2, "1.1")), false},
		"the source was renamed":                 {[]string{"dev", "stage", "prod"}, agreements{"dev": agreed("1.2", 3), "stage": agreed("1.1", 1)}, rolledBack("staging", 5), true},
		"renamed, another revision":              {[]string{"dev", "stage", "prod"}, agreements{"dev": agreed("1.2", 3), "stage": agreed("1.2", 1)}, rolledBack("staging", 5), false},
		"renamed, the next agreement":            {[]string{"dev", "stage", "prod"}, agreements{"stage": agreed("1.1", 2)}, rolledBack("staging", 5), false},
		"renamed after a request":                {[]string{"dev", "stage", "prod"}, agreements{"stage": agreed("1.1", 1)}, []capstanv1.Promotion{requested}, true},
		"renamed after a request and a revision": {[]string{"dev", "stage", "prod"}, agreements{"stage": agreed("1.1", 1)}, []capstanv1.Promotion{requested, inTurn}, false},
		"the same source":                        {[]string{"dev", "staging", "prod"}, agreements{"staging": agreed("1.1", 5)}, []capstanv1.Promotion{requested}, false}, // Ledger.Hold decides.
		"nothing is held":                        {[]string{"dev", "stage", "prod"}, agreements{"stage": agreed("1.1", 1)}, []capstanv1.Promotion{inTurn}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pipelinesv1.Pipeline{Status: pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{}}}
			for _, env := range tc.line {
				p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: env})
				p.Status.Environments[env] = &pipelinesv1.EnvironmentStatus{Agreed: tc.agreed[env]}
			}
			q := QuestionOf(p, make([]Fleet, len(tc.line)), tc.all, len(tc.line)-1)
			NewWithT(t).Expect(q.HeldBefore).To(Equal(tc.want))
		})
	}
}

// Environments change places, or one is removed: the new source may run a revision that is older than
// what the environment got from its former source. TestRandomHistoriesOfTheLine found that the older
// one was sent over the later one.
func TestAhead(t *testing.T) {
	when := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	// made is when a promotion was created, in minutes.
	made := func(minute int, p capstanv1.Promotion) capstanv1.Promotion {
		p.CreationTimestamp = metav1.NewTime(when.Add(time.Duration(minute) * time.Minute))
		p.Status = capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, CarriedOutTime: &p.CreationTimestamp}
		return p
	}
	ofFormer := func(p capstanv1.Promotion) capstanv1.Promotion {
		p.Spec.Pipeline.UID = "former"
		return p
	}
	ended := func(p capstanv1.Promotion, status capstanv1.PromotionStatus) capstanv1.Promotion {
		p.Status = status
		return p
	}
	for name, tc := range map[string]struct {
		all  []capstanv1.Promotion
		want bool
	}{
		"they changed places": {
			[]capstanv1.Promotion{made(1, promotionInto("staging", "dev", 1, 1, "1.0")), made(2, promotionInto("prod", "dev", 1, 2, "1.1"))}, true,
		},
		"changed places, the older one was created later": { // It waited for a target.
			[]capstanv1.Promotion{made(1, promotionInto("qa", "dev", 1, 1, "1.0")), made(3, promotionInto("staging", "qa", 1, 1, "1.0")), made(2, promotionInto("prod", "dev", 1, 2, "1.1"))}, true,
		},
		"the environment between them was removed, it had delivered an older one late": {
			[]capstanv1.Promotion{
				made(1, promotionInto("staging", "dev", 1, 1, "0.9")), made(2, promotionInto("qa", "staging", 1, 1, "0.9")),
				made(3, promotionInto("staging", "dev", 2, 2, "1.0")), made(4, promotionInto("prod", "qa", 1, 1, "0.9")),
			}, false,
		},
		"the former Pipeline delivered a later one": {
			[]capstanv1.Promotion{ofFormer(made(1, promotionInto("staging", "qa", 1, 1, "1.0"))), ofFormer(made(2, promotionInto("prod", "dev", 1, 1, "1.1")))}, true,
		},
		"the former Pipeline delivered another one before": {
			[]capstanv1.Promotion{made(3, promotionInto("staging", "dev", 1, 1, "1.0")), ofFormer(made(2, promotionInto("prod", "dev", 1, 2, "1.1")))}, false,
		},
		"in the same second, from no common environment": {
			[]capstanv1.Promotion{made(1, promotionInto("staging", "qa", 1, 1, "1.0")), made(1, promotionInto("prod", "dev", 1, 2, "1.1"))}, true,
		},
		"the later one is being sent": {
			[]capstanv1.Promotion{
				made(1, promotionInto("staging", "dev", 1, 1, "1.0")),
				ended(made(2, promotionInto("prod", "dev", 1, 2, "1.1")), capstanv1.PromotionStatus{Phase: capstanv1.PhasePromoting, Attempt: &capstanv1.Attempt{NextAttemptTime: metav1.NewMicroTime(when)}}),
			}, true,
		},
		"the later one was never sent": {
			[]capstanv1.Promotion{
				made(1, promotionInto("staging", "dev", 1, 1, "1.0")),
				ended(made(2, promotionInto("prod", "dev", 1, 2, "1.1")), capstanv1.PromotionStatus{Phase: capstanv1.PhaseRejected}),
			}, false,
		},
		"from the same source": {
			[]capstanv1.Promotion{made(1, promotionInto("staging", "dev", 1, 1, "1.0")), made(2, promotionInto("prod", "staging", 1, 2, "1.1"))}, false,
		},
		"the same revision": {
			[]capstanv1.Promotion{made(1, promotionInto("staging", "dev", 1, 1, "1.0")), made(2, promotionInto("prod", "dev", 1, 1, "1.0"))}, false,
		},
		"by hand": {[]capstanv1.Promotion{made(2, promotionInto("prod", "dev", 1, 2, "1.1"))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pipelinesv1.Pipeline{Status: pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{
				"dev": {Agreed: agreed("1.2", 3)}, "staging": {Agreed: agreed("1.0", 1)}, "prod": {},
			}}}
			for _, env := range []string{"dev", "staging", "prod"} {
				p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: env})
			}
			g := NewWithT(t)
			g.Expect(QuestionOf(p, make([]Fleet, 3), tc.all, 2).Ahead).To(Equal(tc.want))
			p.Status.Environments["dev"].Agreed = agreed("1.0", 3)
			g.Expect(QuestionOf(p, make([]Fleet, 3), tc.all, 2).Ahead).To(BeFalse(), "the first environment runs the candidate")
		})
	}
}
