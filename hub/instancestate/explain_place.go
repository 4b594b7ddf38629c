package instancestate

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
)

// readPlace sets the account and region of the object, and who names them.
func (x *explaining) readPlace(ctx context.Context) {
	var err error
	place, readable := owner.PlaceOf(&x.object, func(o owner.Object) (owner.Place, bool) {
		var p owner.Place
		p, err = placeOf(ctx, x.Reader, o)
		return p, err == nil
	})
	x.place, x.unplaced = place, err
	x.Region, x.Account = place.Region, place.Account
	switch {
	case !readable:
		x.RegionBy = fmt.Sprintf("an object that names it cannot be read: %v", err)
		x.AccountBy = x.RegionBy
	case x.object.GroupARN != "":
		x.RegionBy, x.AccountBy = "the ARN of its group", "the ARN of its group"
	default:
		x.namedBy(ctx)
	}
}

// namedBy sets which objects name the region and the account.
func (x *explaining) namedBy(ctx context.Context) {
	cluster, err := clusterOf(ctx, x.Reader, x.object.Namespace, x.object.ClusterName)
	if err != nil {
		return // placeOf has just read it.
	}
	where, err := capa.PlaceOf(ctx, x.Reader, cluster, x.object.Region)
	if err != nil {
		return
	}
	switch {
	case where.NamedBy != nil:
		x.RegionBy = where.NamedBy.GetKind() + " " + where.NamedBy.GetName()
	case x.object.Region != "":
		x.RegionBy = "its annotation " + capa.RegionAnnotation
	case where.Region != "":
		x.RegionBy = fmt.Sprintf("annotation %s of Cluster %s", capa.RegionAnnotation, cluster.GetName())
	case cluster == nil:
		x.RegionBy = "it has no Cluster, and no annotation " + capa.RegionAnnotation
	default:
		x.RegionBy = fmt.Sprintf("neither the AWSCluster or control plane of Cluster %s names it, nor an annotation %s", cluster.GetName(), capa.RegionAnnotation)
	}
	const queues = "the account of the queue counts, or its accounts"
	role, refused, err := capa.RoleOf(ctx, x.Reader, where.IdentityOf)
	switch {
	case err != nil:
	case x.object.Cluster != "":
		x.AccountBy = "identities of a self-managed cluster do not count: " + queues
	case where.IdentityOf == nil:
		x.AccountBy = "its Cluster has no AWSCluster or control plane: " + queues
	case refused != "":
		x.AccountBy = fmt.Sprintf("%s; until then %s", refused, queues)
	case role == (capa.Role{}):
		x.AccountBy = fmt.Sprintf("%s %s names no AWSClusterRoleIdentity: %s", where.IdentityOf.GetKind(), where.IdentityOf.GetName(), queues)
	case x.Account == "":
		x.AccountBy = fmt.Sprintf("role %q of AWSClusterRoleIdentity %s is no ARN: %s", role.ARN, identityName(where.IdentityOf), queues)
	default:
		x.AccountBy = fmt.Sprintf("role %s of AWSClusterRoleIdentity %s", role.ARN, identityName(where.IdentityOf))
	}
}

// identityName returns the name of the identity of an AWSCluster or control plane.
func identityName(of *unstructured.Unstructured) string {
	return capa.Text(of, "spec", "identityRef", "name")
}

// readSources reads the EventingBackends with role source. It is first: without this kind, the
// cluster is not a management cluster.
func (x *explaining) readSources(ctx context.Context) {
	var list eventingv1.EventingBackendList
	err := x.List(ctx, &list)
	if apierrors.IsForbidden(err) && x.options.HubNamespace != "" {
		all := err
		if err = x.List(ctx, &list, client.InNamespace(x.options.HubNamespace)); err == nil {
			x.NoSources = fmt.Sprintf("you may list only the EventingBackends of namespace %s: %v", x.options.HubNamespace, all)
		}
	}
	switch {
	case capa.Absent(err):
		x.member = true
		x.NoSources = "this cluster does not serve EventingBackends: if it is a self-managed cluster, they are in its management cluster; else install Capstan"
		return
	case err != nil:
		x.NoSources = fmt.Sprintf("EventingBackends cannot be listed, neither in all namespaces nor in %s: %v", orNone(x.options.HubNamespace), err)
		return
	}
	// The namespaces that the hub allows are not known here; the status of a source says it.
	every := schema.Namespaces{schema.AllNamespaces}
	types, err := schema.Types(schema.Options{SQSSourceNamespaces: every, SQSSinkNamespaces: every})
	if err != nil {
		x.NoSources = err.Error() // Not expected: no option is set that can be wrong.
		return
	}
	for i := range list.Items {
		if backend := &list.Items[i]; backend.Spec.Type == schema.TypeSQS && backend.Spec.IsSource() {
			x.addSource(types, backend)
		}
	}
}

// addSource adds a source. Its row is completed when the place of the object is known.
func (x *explaining) addSource(types *schema.Registry, backend *eventingv1.EventingBackend) {
	name := client.ObjectKeyFromObject(backend)
	of := SourceOf{Name: name.String()}
	switch ready := backend.Status.Condition(eventingv1.ReadyCondition); {
	case backend.DeletionTimestamp != nil:
		of.Message = "it is being deleted"
	case ready == nil || backend.Status.ObservedGeneration < backend.Generation:
		of.Message = "the hub has not observed it, or its last change"
	case ready.Status != metav1.ConditionTrue:
		of.Message = ready.Reason + ": " + ready.Message
	default:
		of.Ready, of.Message = true, ready.Message
	}
	config, invalid := types.Resolve(backend)
	if len(invalid) > 0 {
		of.Why = fmt.Sprintf("its configuration is not valid: %s: %s", invalid[0].Config, invalid[0].Error)
		x.Sources = append(x.Sources, of)
		return
	}
	x.sources = append(x.sources, settingsOf(config).origin(name, ""))
	x.Sources = append(x.Sources, of)
}

// matchSources sets which sources can deliver events of the object.
func (x *explaining) matchSources() {
	for i := range x.Sources {
		for _, from := range x.sources {
			if from.source == x.Sources[i].Name {
				x.Sources[i].Delivers, x.Sources[i].Why = x.matches(from)
			}
		}
	}
}

// matches returns whether a source can deliver events of the object, and why.
func (x *explaining) matches(from origin) (delivers bool, why string) {
	place := from.place(x.place)
	region := orUnknown(from.region)
	switch {
	case from.region != "" && place.Region != "" && from.region != place.Region:
		return false, fmt.Sprintf("its queue is in %s: it gets the events of that region only", from.region)
	case place.Account != "" && !from.takes(place.Account):
		return false, fmt.Sprintf("its accounts are %s, without %s", strings.Join(from.accounts, ", "), place.Account)
	case place.Account != "":
		return true, fmt.Sprintf("region %s, account %s", region, place.Account)
	case from.accounts != nil:
		return true, fmt.Sprintf("region %s, accounts %s", region, strings.Join(from.accounts, ", "))
	}
	return true, fmt.Sprintf("region %s, any account: the URL of its queue names none", region)
}
