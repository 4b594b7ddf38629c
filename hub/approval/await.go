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
	// patience is how long a call waits for what comes of it. A pull request takes a
	// second or two; who calls gives up after ten or so.
	patience = 5 * time.Second
	// lookEvery is how often the cache is asked meanwhile.
	lookEvery = 100 * time.Millisecond
)

// look tells what a call has led to: the pull request's address, if there is one,
// and whether that is all there will be for now. An error ends the wait.
type look func(context.Context) (location string, settled bool, err error)

// await looks until it is settled, or for patience; the call was heard either way.
func (s *Server) await(ctx context.Context, look look) (string, error) {
	timer, ticker := s.Clock.NewTimer(patience), s.Clock.NewTicker(lookEvery)
	defer timer.Stop()
	defer ticker.Stop()
	for {
		location, settled, err := look(ctx)
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

// come tells what a promotion has come to.
func come(p *capstanv1.Promotion) (location string, settled bool, err error) {
	switch p.Status.Phase {
	case "", capstanv1.PhaseAwaitingApproval:
		return "", false, nil
	case capstanv1.PhasePromoting:
		return p.Status.URL, p.Status.URL != "", nil
	case capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseSucceeded, capstanv1.PhaseRejected:
		return p.Status.URL, true, nil
	case capstanv1.PhaseFailed:
		return "", true, refuse(http.StatusInternalServerError, reasonFailed, "%s: Promotion %s/%s: %s: %s",
			weaveFailed, p.Namespace, p.Name, p.Status.Reason, p.Status.Message)
	case capstanv1.PhaseSuperseded:
		return "", true, notApproved(reasonSuperseded, "Promotion %s/%s was superseded: %s", p.Namespace, p.Name, p.Status.Message)
	}
	return "", false, nil
}

// newest promotion of a Pipeline into an environment, by what reader has; nil when there
// is none, or when mark says that there was a newer one.
func newest(ctx context.Context, reader client.Reader, p *pipelinesv1.Pipeline, environment string, mark int64) (*capstanv1.Promotion, error) {
	all, err := promotions.OfPipeline(ctx, reader, client.ObjectKeyFromObject(p), p.UID)
	if err != nil {
		return nil, err
	}
	found := decision.NewestOf(all, environment)
	if found == nil || found.Spec.Number < mark {
		return nil, nil
	}
	return found, nil
}
