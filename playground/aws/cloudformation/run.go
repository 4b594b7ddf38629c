package cloudformation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/capstan-hub/capstan/playground/aws"
)

// sessionTime is the lifetime of the credentials for the calls of a run.
const sessionTime = 12 * time.Hour

// run is the work of a stack: the plan or the execution of a change set, or a deletion.
type run struct {
	service *Service
	server  *aws.Server
	ctx     context.Context //nolint:containedctx // It is the context of the whole run.
	stack   *stack
	worker  *worker
}

// startLocked starts the work of a stack with the permissions of a call's caller.
func (s *Service) startLocked(c *aws.Call, st *stack, do func(*run)) {
	server, caller := c.Server, c.Caller
	resources := maps.Clone(st.resources)
	maps.DeleteFunc(resources, func(_ string, r *resource) bool { return r.physical == "" || r.status == deleteComplete })
	server.Go(func(ctx context.Context) {
		config, closeConnections := server.Config(server.Issue(caller, sessionTime), st.region)
		defer closeConnections()
		config.AppID = "cloudformation.amazonaws.com"
		do(&run{service: s, server: server, ctx: ctx, stack: st, worker: &worker{
			environment: environment{account: st.account, region: st.region, stack: st.name, resources: resources},
			queues:      sqsapi.NewFromConfig(config), iam: iam.NewFromConfig(config), events: eventbridge.NewFromConfig(config),
		}})
	})
}

// wait waits for a time by the server's clock. It returns false if the context ends.
func wait(ctx context.Context, server *aws.Server, d time.Duration) bool {
	if d > 0 {
		timer := server.Clock().NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// ended reports whether the run must end because the server stops.
func (r *run) ended() bool { return !wait(r.ctx, r.server, r.service.pace) }

// setStack sets the status of the stack, and runs a function with the lock.
func (r *run) setStack(status, reason string, also func()) {
	r.service.mu.Lock()
	defer r.service.mu.Unlock()
	if also != nil {
		also()
	}
	r.stack.set(status, reason, r.server.Clock().Now())
}

// setResource sets the status of a resource. The run's environment has it if it exists.
func (r *run) setResource(res resource, status, reason string) {
	res.status, res.reason, res.updated = status, reason, r.server.Clock().Now()
	r.service.mu.Lock()
	defer r.service.mu.Unlock()
	r.stack.resources[res.logical] = &res
	r.stack.event(event{logical: res.logical, physical: res.physical, kind: res.kind, status: status, reason: reason, at: res.updated})
}

// forget removes a deleted resource of an update from the stack.
func (r *run) forget(logical string) {
	r.service.mu.Lock()
	defer r.service.mu.Unlock()
	delete(r.stack.resources, logical)
}

// keep restores a resource of the stack after the rollback of its creation.
func (r *run) keep(res resource) {
	r.service.mu.Lock()
	defer r.service.mu.Unlock()
	r.stack.resources[res.logical] = &res
}

// outputs returns the resolved outputs of a template.
func (r *run) outputs(t *template) map[string]string {
	all := map[string]string{}
	for name, o := range t.outputs {
		all[name] = fmt.Sprint(r.worker.resolve(o.value))
	}
	return all
}

// properties returns the resolved properties of a resource of a template.
func (r *run) properties(t *template, tags map[string]string, logical string) map[string]any {
	resolved, _ := r.worker.resolve(withTags(t.resources[logical], tags)).(map[string]any)
	return resolved
}

// make creates a resource. On failure the resource may exist; then it has a physical id.
func (r *run) make(logical, kind string, p map[string]any, progress, failure string) (resource, error) {
	res := resource{logical: logical, kind: kind, properties: p}
	r.setResource(res, progress, "")
	physical, err := kinds[kind].create(r.ctx, r.worker, logical, p)
	res.physical = physical
	if physical != "" {
		r.worker.resources[logical] = &res
	}
	if err != nil {
		r.setResource(res, failure, reason(err))
	}
	return res, err
}

func (r *run) create(cs *changeSet) {
	for _, logical := range cs.template.order {
		if r.ended() {
			return
		}
		res, err := r.make(logical, cs.template.resources[logical].kind, r.properties(cs.template, cs.tags, logical), createInProgress, createFailed)
		if r.ctx.Err() != nil {
			return
		}
		if err != nil {
			r.setStack(rollbackInProgress, fmt.Sprintf("The following resource(s) failed to create: [%s]. Rollback requested by user.", logical), nil)
			r.removeAll(rollbackComplete, rollbackFailed, func() { cs.execution = executeFailed })
			return
		}
		r.setResource(res, createComplete, "")
	}
	outputs := r.outputs(cs.template)
	r.setStack(createComplete, "", func() { r.stack.outputs, cs.execution = outputs, executeComplete })
}

func (r *run) delete() {
	r.removeAll(deleteComplete, deleteFailed, func() {
		r.stack.deleted, r.stack.outputs, r.stack.changeSets = r.server.Clock().Now(), nil, nil
	})
}

// removeAll deletes all resources of a stack, and sets the status of the stack.
func (r *run) removeAll(complete, failure string, also func()) {
	var undeleted []string
	// A rollback that failed leaves resources that the template does not have.
	order := slices.Clone(r.stack.template.order)
	order = append(order, without(slices.Sorted(maps.Keys(r.worker.resources)), order)...)
	for _, logical := range slices.Backward(order) {
		res := r.worker.resources[logical]
		if res == nil {
			continue
		}
		if r.ended() {
			return
		}
		r.setResource(*res, deleteInProgress, "")
		if err := kinds[res.kind].remove(r.ctx, r.worker, res.physical, res.properties); err != nil {
			if r.ctx.Err() != nil {
				return
			}
			r.setResource(*res, deleteFailed, reason(err))
			undeleted = append(undeleted, logical)
			continue
		}
		r.setResource(*res, deleteComplete, "")
	}
	if len(undeleted) > 0 {
		r.setStack(failure, fmt.Sprintf("The following resource(s) failed to delete: [%s]. ", strings.Join(undeleted, ", ")), nil)
		return
	}
	r.setStack(complete, "", also)
}

// step of an update that a rollback undoes: before is nil for a created resource.
type step struct {
	before *resource
	after  resource
	// live are the properties that the resource had before the step; with drift, those of before
	// differ.
	live map[string]any
	// missing is the resource of the stack that did not exist, and was created again.
	missing *resource
}

// replaces reports whether the step replaced the resource by another one.
func (s step) replaces() bool { return s.before != nil && s.before.physical != s.after.physical }

func (r *run) update(cs *changeSet) {
	var steps []step
	for _, logical := range cs.template.order {
		if r.ended() {
			return
		}
		s, err := r.change(cs, logical)
		if r.ctx.Err() != nil {
			return
		}
		if s != nil {
			steps = append(steps, *s)
		}
		if err != nil {
			verb := "update"
			if s == nil || s.before == nil {
				verb = "create"
			}
			r.rollBack(cs, steps, fmt.Sprintf("The following resource(s) failed to %s: [%s]. ", verb, logical))
			return
		}
	}
	removed := r.removed(cs.template)
	outputs := r.outputs(cs.template)
	r.setStack(updateCleanup, "", func() {
		r.stack.template, r.stack.tags, r.stack.outputs = cs.template, cs.tags, outputs
	})
	for _, s := range slices.Backward(steps) {
		if s.replaces() && !r.cleanUp(*s.before, false) {
			return
		}
	}
	for _, res := range removed {
		if !r.cleanUp(res, true) {
			return
		}
	}
	r.setStack(updateComplete, "", func() { cs.execution = executeComplete })
}

// removed returns the resources that a template does not have, in the order of deletion.
func (r *run) removed(t *template) []resource {
	var all []resource
	for _, logical := range slices.Backward(r.stack.template.order) {
		if _, has := t.resources[logical]; !has && r.worker.resources[logical] != nil {
			all = append(all, *r.worker.resources[logical])
		}
	}
	return all
}

// change creates, changes or replaces a resource of an update. It returns nil if nothing was
// done.
func (r *run) change(cs *changeSet, logical string) (*step, error) {
	kind := cs.template.resources[logical].kind
	p := r.properties(cs.template, cs.tags, logical)
	before := r.worker.resources[logical]
	d, drifted := cs.drifted[logical]
	if before != nil && !drifted && equal(before.properties, p) {
		return nil, nil
	}
	var missing *resource
	if d.missing {
		before, missing = nil, before
	}
	var live map[string]any
	if before != nil {
		if live = d.live; !drifted {
			live = before.properties
		}
	}
	if before == nil || needsReplacement(kind, live, p) {
		progress, complete, failure := createInProgress, createComplete, createFailed
		if before != nil {
			progress, complete, failure = updateInProgress, updateComplete, updateFailed
		}
		res, err := r.make(logical, kind, p, progress, failure)
		if err == nil {
			r.setResource(res, complete, "")
		}
		if err != nil && before != nil && res.physical == "" {
			res.physical = before.physical // The old one is still in use.
		}
		return &step{before, res, live, missing}, err
	}
	res := resource{logical: logical, kind: kind, physical: before.physical, properties: p}
	r.setResource(res, updateInProgress, "")
	r.worker.resources[logical] = &res
	if err := kinds[kind].update(r.ctx, r.worker, res.physical, live, p); err != nil {
		r.setResource(res, updateFailed, reason(err))
		return &step{before, res, live, nil}, err
	}
	r.setResource(res, updateComplete, "")
	return &step{before, res, live, nil}, nil
}

func needsReplacement(kind string, before, p map[string]any) bool {
	for name, replaces := range kinds[kind].properties {
		if replaces && !equal(before[name], p[name]) {
			return true
		}
	}
	return false
}

// rollBack undoes the steps of an update. Resources that had drifted get their state from before
// the update, as in AWS.
func (r *run) rollBack(cs *changeSet, steps []step, why string) {
	r.setStack(updateRollbackInProgress, why, nil)
	for _, s := range slices.Backward(steps) {
		if s.before == nil {
			continue
		}
		if r.ended() {
			return
		}
		r.worker.resources[s.before.logical] = s.before
		if !s.replaces() {
			r.setResource(s.after, updateInProgress, "")
			if err := kinds[s.after.kind].update(r.ctx, r.worker, s.before.physical, s.after.properties, s.live); err != nil {
				r.setResource(s.after, updateFailed, reason(err))
				r.setStack(updateRollbackFailed, fmt.Sprintf("The following resource(s) failed to update: [%s]. ", s.after.logical), func() { cs.execution = executeFailed })
				return
			}
		}
		r.setResource(*s.before, updateComplete, "")
	}
	r.setStack(updateRollbackCleanup, "", nil)
	for _, s := range slices.Backward(steps) {
		switch {
		case s.before == nil && s.after.physical == "":
			r.forget(s.after.logical)
			delete(r.worker.resources, s.after.logical)
		case s.before == nil || s.replaces():
			if !r.cleanUp(s.after, s.before == nil) {
				return
			}
		}
		if s.missing != nil {
			r.keep(*s.missing)
		}
	}
	r.setStack(updateRollbackComplete, "", func() { cs.execution = executeFailed })
}

// cleanUp deletes a resource that the stack has no more: it is forgotten, or another one
// has its logical id. A failure only has an event, as in AWS. It returns false if the run
// must end.
func (r *run) cleanUp(res resource, forget bool) bool {
	if r.ended() {
		return false
	}
	status, why := deleteComplete, ""
	r.note(res, deleteInProgress, "")
	if err := kinds[res.kind].remove(r.ctx, r.worker, res.physical, res.properties); err != nil {
		if r.ctx.Err() != nil {
			return false
		}
		status, why = deleteFailed, reason(err)
	}
	r.note(res, status, why)
	if forget {
		r.forget(res.logical)
		delete(r.worker.resources, res.logical)
	}
	return true
}

// note adds an event of a resource without a change of the stack's resource.
func (r *run) note(res resource, status, why string) {
	r.service.mu.Lock()
	defer r.service.mu.Unlock()
	r.stack.event(event{logical: res.logical, physical: res.physical, kind: res.kind, status: status, reason: why, at: r.server.Clock().Now()})
}
