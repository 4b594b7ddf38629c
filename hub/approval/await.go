package approval

import (
	"context"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/promotions"
)

const (
	// patience is how long a call waits for its result. A pull request takes 1 or 2 seconds;
	// clients give up after about 10 seconds.
	patience = 5 * time.Second
	// pollInterval is the time between two reads of the cache during the wait.
	pollInterval = 100 * time.Millisecond
)

// poll returns the result of a call so far: the address of the pull request, if there is one,
// and whether the result is final for now. An error ends the wait.
type poll func(context.Context) (location string, settled bool, err error)

// await polls until the result is settled, or for patience. The call has its effect in both
// cases.
func (s *Server) await(ctx context.Context, poll poll) (string, error) {
	timer, ticker := s.Clock.NewTimer(patience), s.Clock.NewTicker(pollInterval)
	defer timer.Stop()
	defer ticker.Stop()
	for {
		location, settled, err := poll(ctx)
		if err != nil || settled {
			return location, err
		}
		select {
		case <-ticker.C():
		case <-timer.C():
			return location, nil
		case <-s.stopping:
			return location, nil
		case <-ctx.Done():
			return location, nil
		}
	}
}

// outcome returns the result of a promotion so far.
func outcome(p *capstanv1.Promotion) (location string, settled bool, err error) {
	switch p.Status.Phase {
	case "", capstanv1.PhaseAwaitingApproval:
		return "", false, nil
	case capstanv1.PhaseAwaitingGates: // It may take days; the approval is recorded.
		return "", true, nil
	case capstanv1.PhasePromoting:
		return p.Status.URL, p.Status.URL != "", nil
	case capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying, capstanv1.PhaseSucceeded, capstanv1.PhaseRejected:
		return p.Status.URL, true, nil
	case capstanv1.PhaseFailed:
		return "", true, refuse(http.StatusInternalServerError, reasonFailed, "%s: Promotion %s/%s: %s: %s",
			weaveFailed, p.Namespace, p.Name, p.Status.Reason, p.Status.Message)
	case capstanv1.PhaseSuperseded:
		return "", true, notApproved(reasonSuperseded, "Promotion %s/%s was superseded: %s", p.Namespace, p.Name, p.Status.Message)
	}
	return "", false, nil
}

// newest returns the newest promotion of a Pipeline into an environment. It returns nil if
// there is none, or if mark shows that a newer one existed.
func newest(ctx context.Context, reader client.Reader, p *pipelinesv1.Pipeline, environment string, mark int64) (*capstanv1.Promotion, error) {
	all, err := promotions.OfPipeline(ctx, reader, client.ObjectKeyFromObject(p), p.UID)
	if err != nil {
		return nil, err
	}
	found := decision.NewestOf(p.UID, all, environment)
	if found == nil || found.Spec.Number < mark {
		return nil, nil
	}
	return found, nil
}
