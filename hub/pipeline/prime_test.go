package pipeline

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/watchers"
)

// demandCalls records the owners of each call.
type demandCalls struct{ owners [][]string }

func (d *demandCalls) SetDemand(owner string, _ []watchers.Demand) {
	d.owners = append(d.owners, []string{owner})
}

func (*demandCalls) Confirm(watchers.Demand) {}

func (d *demandCalls) SetDemands(want map[string][]watchers.Demand) {
	var all []string
	for owner, demands := range want {
		if len(demands) == 2 {
			all = append(all, owner)
		}
	}
	d.owners = append(d.owners, all)
}

// stored are the Pipelines and PromotionRequests of a client that reads nothing else.
type stored struct {
	client.Client
	pipelines []pipelinesv1.Pipeline
	requests  []capstanv1.PromotionRequest
}

func (s stored) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for i := range s.pipelines {
		if client.ObjectKeyFromObject(&s.pipelines[i]) == key {
			s.pipelines[i].DeepCopyInto(into.(*pipelinesv1.Pipeline))
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pipelines"}, key.Name)
}

func (s stored) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	switch list := into.(type) {
	case *pipelinesv1.PipelineList:
		list.Items = s.pipelines
	case *capstanv1.PromotionRequestList:
		list.Items = s.requests
	}
	return nil
}

// TestAStartDemandsEverythingAtOnce: a watch that starts earlier would have to read each
// application that is demanded later with a request of its own.
func TestAStartDemandsEverythingAtOnce(t *testing.T) {
	s := newScene(t)
	deleted := pipelineNamed("deleted")
	deleted.DeletionTimestamp = &metav1.Time{Time: s.r.Clock.Now()}
	s.r.Client = stored{pipelines: []pipelinesv1.Pipeline{*pipelineNamed("one"), *pipelineNamed("two"), *deleted}}
	calls := &demandCalls{}
	s.r.Watchers = calls
	for range 2 {
		// The one that is deleted needs nothing else of the reconciler.
		_, err := s.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(deleted)})
		s.g.Expect(err).NotTo(HaveOccurred())
	}
	s.g.Expect(calls.owners).To(HaveLen(3))
	s.g.Expect(calls.owners[0]).To(ConsistOf("Pipeline/apps/one", "Pipeline/apps/two"))
	s.g.Expect(calls.owners[1:]).To(HaveEach(ConsistOf("Pipeline/apps/deleted")))
	s.g.Expect(s.r.Index.Stats().Objects).To(Equal(2))
}
