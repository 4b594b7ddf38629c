package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/capstan-hub/capstan/internal/hubname"
)

const (
	// HubLabel on the Lease of a named hub, and on its claims, has the name of the hub.
	HubLabel = "capstan.dev/hub"
	// DashboardAnnotation on a claim has the URL of the hub's dashboard.
	DashboardAnnotation = "capstan.dev/dashboard-url"
	// prefix of the names of claims; the namespace follows.
	prefix = "capstan-namespace-"
	// writesAtOnce of claims.
	writesAtOnce = 8
	// longAgo is after how long a Lease without a holder is free by its own time: longer than clocks differ.
	longAgo = 10 * time.Minute
)

// Conflict says which hub serves a namespace that this hub wants to serve.
type Conflict struct {
	// Namespace that both hubs serve; empty if the other one has no name, and may serve all.
	Namespace string
	// Hub is the name of the other hub; empty if it has none.
	Hub string
	// Lease is the namespace and name of the other hub's Lease.
	Lease string
}

// Error implements error.
func (c *Conflict) Error() string {
	if c.Hub == "" {
		return fmt.Sprintf("a hub without --hub-name leads (Lease %s) and may serve all namespaces: this hub does not act until that one has ended", c.Lease)
	}
	return fmt.Sprintf("namespace %s is served by hub %s (Lease %s): this hub does not act until %s is in --namespace of one hub only", c.Namespace, c.Hub, c.Lease, c.Namespace)
}

// Denied says that this hub may not read which hub serves which namespace, or not write a claim.
type Denied struct {
	// In is the namespace of the Leases.
	In string
	// Namespace whose claim this hub may not write; empty if it may not read them.
	Namespace string
	// Err is the answer of the API server.
	Err error
}

// Error implements error.
func (d *Denied) Error() string {
	if d.Namespace != "" {
		return fmt.Sprintf("namespace %s cannot be claimed: this hub does not act until it may create, get and update Lease %s/%s: %s", d.Namespace, d.In, prefix+d.Namespace, d.Err)
	}
	return fmt.Sprintf("whether another hub serves its namespaces is not known: this hub does not act until it may list Leases in namespace %s: %s", d.In, d.Err)
}

// Unwrap returns the answer of the API server.
func (d *Denied) Unwrap() error { return d.Err }

// claims are the claims of one hub.
type claims struct {
	leases     coordinationclient.LeaseInterface
	hub        string
	namespaces []string
	dashboard  string
	allLease   string
	in         string // The namespace of the Leases, for messages.
	lease      time.Duration
	clock      clock.PassiveClock
	// seen has the Leases of other hubs, and since when each is as it is.
	seen map[string]sighting
}

type sighting struct {
	version string
	since   time.Time
}

// existingClaims are those of all hubs, by namespace.
type existingClaims map[string]*coordinationv1.Lease

// existing returns the claims and, by name, the other Leases of the hubs' namespace, all as they were at one moment. It does
// not select them by HubLabel: the Lease of a hub without a name does not have it, and a user may have removed it from others.
func existing(ctx context.Context, leases coordinationclient.LeaseInterface) (existingClaims, map[string]*coordinationv1.Lease, error) {
	list, err := leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("reading which hub serves which namespace: %w", err)
	}
	all, others := existingClaims{}, map[string]*coordinationv1.Lease{}
	for i := range list.Items {
		l := &list.Items[i]
		if namespace, is := strings.CutPrefix(l.Name, prefix); is {
			all[namespace] = l
		} else {
			others[l.Name] = l
		}
	}
	return all, others, nil
}

func holder(claim *coordinationv1.Lease) string { return ptr.Deref(claim.Spec.HolderIdentity, "") }

// leads returns whether the hub of a Lease may have a leader, as far as can be observed. It has none if its Lease does not
// exist, or has not changed for its duration since it was first read. One without a holder counts as held for a lease, too: a
// standby of the same hub is about to take it. Leases are those that exist.
func (c *claims) leads(leases map[string]*coordinationv1.Lease, name string) bool {
	read := leases[name]
	if read == nil {
		delete(c.seen, name)
		return false
	}
	now := c.clock.Now()
	if c.seen[name].version != read.ResourceVersion {
		c.seen[name] = sighting{version: read.ResourceVersion, since: now}
	}
	valid := c.lease
	switch renewed := read.Spec.RenewTime; {
	case holder(read) != "":
		valid = time.Duration(ptr.Deref(read.Spec.LeaseDurationSeconds, 0)) * time.Second
	case renewed != nil && now.Sub(renewed.Time) > longAgo:
		return false
	}
	return now.Sub(c.seen[name].since) < valid
}

// check returns the claims that exist and, as a *Conflict or a *Denied, what keeps the hub from having its own until a user
// changes it.
func (c *claims) check(ctx context.Context) (existingClaims, error) {
	all, others, err := existing(ctx, c.leases)
	if apierrors.IsForbidden(err) {
		return nil, &Denied{In: c.in, Err: errors.Unwrap(err)}
	}
	if err != nil {
		return nil, err
	}
	if c.leads(others, c.allLease) {
		return nil, &Conflict{Lease: c.in + "/" + c.allLease}
	}
	for _, namespace := range c.namespaces {
		claim := all[namespace]
		if claim == nil || holder(claim) == c.hub || holder(claim) == "" {
			continue
		}
		other := holder(claim)
		if lease := hubname.Of(c.allLease, other); c.leads(others, lease) {
			return nil, &Conflict{Namespace: namespace, Hub: other, Lease: c.in + "/" + lease}
		}
	}
	return all, nil
}

// take writes all claims of the hub, and deletes those of namespaces that it does not serve any more. It must be called
// after the hub's Lease was written. It returns a *Denied if it may not write a claim.
func (c *claims) take(ctx context.Context) error {
	all, err := c.check(ctx)
	if err != nil {
		return err
	}
	if err := c.writeAll(ctx, all); err != nil {
		return err
	}
	var errs []error
	for namespace, claim := range all {
		if holder(claim) != c.hub || slices.Contains(c.namespaces, namespace) {
			continue
		}
		err := c.leases.Delete(ctx, claim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &claim.ResourceVersion}})
		// Without the right to delete it, no other hub has the namespace in its list: the chart gives both.
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsForbidden(err) {
			errs = append(errs, fmt.Errorf("releasing namespace %s: %w", namespace, err))
		}
	}
	return errors.Join(errs...)
}

// writeAll writes all claims of the hub.
func (c *claims) writeAll(ctx context.Context, all existingClaims, dryRun ...string) error {
	writing, whole := errgroup.WithContext(ctx)
	writing.SetLimit(writesAtOnce)
	for _, namespace := range c.namespaces {
		writing.Go(func() error { return c.write(whole, namespace, all[namespace], dryRun...) })
	}
	return writing.Wait()
}

// write writes a claim, or with metav1.DryRunAll only asks whether it may.
func (c *claims) write(ctx context.Context, namespace string, claim *coordinationv1.Lease, dryRun ...string) error {
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: prefix + namespace}}
	if claim != nil {
		next = claim.DeepCopy()
	}
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	next.Labels[HubLabel] = c.hub
	delete(next.Annotations, DashboardAnnotation)
	if c.dashboard != "" {
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		next.Annotations[DashboardAnnotation] = c.dashboard
	}
	next.Spec.HolderIdentity = &c.hub
	next.Spec.AcquireTime = &metav1.MicroTime{Time: c.clock.Now()}
	var err error
	if claim == nil {
		_, err = c.leases.Create(ctx, next, metav1.CreateOptions{DryRun: dryRun})
	} else {
		_, err = c.leases.Update(ctx, next, metav1.UpdateOptions{DryRun: dryRun})
	}
	switch {
	case apierrors.IsForbidden(err):
		return &Denied{In: c.in, Namespace: namespace, Err: err}
	case err != nil:
		return fmt.Errorf("claiming namespace %s: %w", namespace, err)
	}
	return nil
}

// Hub is a hub, as its claims show it.
type Hub struct {
	// Name of the hub.
	Name string
	// Namespaces that it serves, sorted.
	Namespaces []string
	// Dashboard is the URL of its dashboard; empty if it is not known.
	Dashboard string
}

// Hubs returns the hubs that have claims, sorted by name. A hub that has ended in order is not among them.
func Hubs(ctx context.Context, leases coordinationclient.LeaseInterface) ([]Hub, error) {
	all, others, err := existing(ctx, leases)
	if err != nil {
		return nil, err
	}
	lead := map[string]bool{}
	for _, l := range others {
		if name := l.Labels[HubLabel]; name != "" && holder(l) != "" {
			lead[name] = true
		}
	}
	byName := map[string]*Hub{}
	for namespace, claim := range all {
		name := holder(claim)
		if !lead[name] {
			continue
		}
		if byName[name] == nil {
			byName[name] = &Hub{Name: name}
		}
		byName[name].Namespaces = append(byName[name].Namespaces, namespace)
		byName[name].Dashboard = claim.Annotations[DashboardAnnotation]
	}
	hubs := make([]Hub, 0, len(byName))
	for _, h := range byName {
		slices.Sort(h.Namespaces)
		hubs = append(hubs, *h)
	}
	slices.SortFunc(hubs, func(a, b Hub) int { return strings.Compare(a.Name, b.Name) })
	return hubs, nil
}
