package strategy

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

func TestSpecWithoutStrategyIsTerminal(t *testing.T) {
	pr, notification := &pipelinesv1.PullRequestPromotion{}, &pipelinesv1.NotificationPromotion{}
	for name, tc := range map[string]struct {
		spec   pipelinesv1.Strategy
		reason string
	}{
		"none":    {pipelinesv1.Strategy{}, "InvalidSpec"},
		"both":    {pipelinesv1.Strategy{PullRequest: pr, Notification: notification}, "InvalidSpec"},
		"unknown": {pipelinesv1.Strategy{PullRequest: pr}, "UnknownStrategy"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := &capstanv1.Promotion{}
			p.Spec.Strategy = tc.spec
			_, err := Registry{}.For(p)
			var terminal *TerminalError
			g.Expect(errors.As(err, &terminal)).To(BeTrue())
			g.Expect(terminal.Reason).To(Equal(tc.reason))
		})
	}
}
