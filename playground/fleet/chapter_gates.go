package fleet

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
)

// gatesChapter releases a revision of shop while its environments require a soak, and an administrator
// has stopped all promotions.
type gatesChapter struct {
	pipelines  pipelines
	promotions promotions
	shop       developers
	management *management
	files      *files
}

// soakTime is long enough to be seen, and short enough for a story.
const soakTime = "3s"

func (c gatesChapter) play(ctx context.Context, s *stage) (err error) {
	const revision = "1.4.0"
	if err := c.edit(ctx, &pipelinesv1.Gates{Soak: &pipelinesv1.Soak{For: soakTime}}); err != nil {
		return err
	}
	stop := &capstanv1.PromotionWindow{ObjectMeta: metav1.ObjectMeta{Name: "stop"}, Spec: capstanv1.PromotionWindowSpec{
		WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow, Reason: "incident 4711"},
	}}
	if err := c.management.Create(ctx, stop); err != nil {
		return err
	}
	s.note("each environment of shop must be healthy for %s, and PromotionWindow %s denies all promotions", soakTime, stop.Name)
	if err := releaseInDev(ctx, s, revision, c.shop); err != nil {
		return err
	}
	var waiting *capstanv1.Promotion
	if err := s.await(ctx, "dev has soaked; the Promotion into staging waits for the window, and says so", func(ctx context.Context) (err error) {
		if waiting, err = c.promotions.only(ctx, shop, staging, revision, capstanv1.PhaseAwaitingGates); err != nil {
			return err
		}
		if waiting.Status.Reason != gate.ReasonFrozen {
			return fmt.Errorf("it is %s: %s", waiting.Status.Reason, waiting.Status.Message)
		}
		return nil
	}); err != nil {
		return err
	}
	s.note("%s", waiting.Status.Message)
	if err := s.await(ctx, "the PromotionWindow is active, and shows how many Pipelines it stops", func(ctx context.Context) error {
		err := c.management.Get(ctx, client.ObjectKeyFromObject(stop), stop)
		if err == nil && (!stop.Status.Active || stop.Status.Pipelines == 0) {
			err = fmt.Errorf("its status is %+v", stop.Status)
		}
		return err
	}); err != nil {
		return err
	}
	if err := s.expect(ctx, "mallory, who lacks the verb override, is refused", func(ctx context.Context) error {
		err := override(ctx, c.management, waiting.Name, mallory)
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the API server answered: %w", errors.Join(err, errNotRefused))
		}
		s.note("%v", err)
		return nil
	}); err != nil {
		return err
	}
	s.note("%s delete promotionwindow %s", kubectlFor(c.files)(managementName), stop.Name)
	if err := c.management.Delete(ctx, stop); err != nil {
		return err
	}
	if err := s.await(ctx, "the promotion continues by itself: shop runs "+revision+" everywhere, promoted once to staging and once to prod",
		all(c.pipelines.runs(shop, revision, Environments...), c.promotions.once(shop, revision, staging, prod))); err != nil {
		return err
	}
	return c.edit(ctx, nil)
}

// edit the gates of shop.
func (c gatesChapter) edit(ctx context.Context, gates *pipelinesv1.Gates) error {
	p, err := c.pipelines.get(ctx, shop)
	if err != nil {
		return err
	}
	before := p.DeepCopy()
	p.Spec.Gates = gates
	return c.management.Patch(ctx, p, client.MergeFrom(before))
}

// override the windows of administrators for a Promotion, as a user.
func override(ctx context.Context, m *management, name, user string) error {
	return patchAs(ctx, m, user, name,
		fmt.Sprintf(`{"spec":{"overrides":[{"gate":%q,"by":%q,"reason":"I am in a hurry"}]}}`, capstanv1.GatePromotionWindows, user))
}
