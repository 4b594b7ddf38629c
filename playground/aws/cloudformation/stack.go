package cloudformation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/capstan-hub/capstan/playground/aws"
)

// Statuses of stacks and resources.
const (
	reviewInProgress         = "REVIEW_IN_PROGRESS"
	createInProgress         = "CREATE_IN_PROGRESS"
	createComplete           = "CREATE_COMPLETE"
	createFailed             = "CREATE_FAILED"
	updateInProgress         = "UPDATE_IN_PROGRESS"
	updateComplete           = "UPDATE_COMPLETE"
	updateFailed             = "UPDATE_FAILED"
	updateCleanup            = "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"
	deleteInProgress         = "DELETE_IN_PROGRESS"
	deleteComplete           = "DELETE_COMPLETE"
	deleteFailed             = "DELETE_FAILED"
	rollbackInProgress       = "ROLLBACK_IN_PROGRESS"
	rollbackComplete         = "ROLLBACK_COMPLETE"
	rollbackFailed           = "ROLLBACK_FAILED"
	updateRollbackInProgress = "UPDATE_ROLLBACK_IN_PROGRESS"
	updateRollbackCleanup    = "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS"
	updateRollbackComplete   = "UPDATE_ROLLBACK_COMPLETE"
	updateRollbackFailed     = "UPDATE_ROLLBACK_FAILED"
)

const inProgress = "_IN_PROGRESS"

const stackType = "AWS::CloudFormation::Stack"

// stack of an account and region. Service.mu protects it, except for account, region, name
// and id, which do not change.
type stack struct {
	account, region, name, id string

	status, reason            string
	created, updated, deleted time.Time
	capabilities              []string
	tags                      map[string]string
	// template of the resources; nil until a change set was executed.
	template *template
	// resources by logical id. The values are not changed but replaced.
	resources map[string]*resource
	outputs   map[string]string
	// events, oldest first.
	events     []event
	changeSets []*changeSet
}

// resource of a stack.
type resource struct {
	logical, kind, physical string
	// properties are resolved.
	properties     map[string]any
	status, reason string
	updated        time.Time
}

type event struct {
	id, logical, physical, kind, status, reason string
	at                                          time.Time
}

type tag struct{ Key, Value string }

// addLocked adds a stack.
func (s *Service) addLocked(c *aws.Call, name string) *stack {
	now := c.Server.Clock().Now()
	st := &stack{
		account: c.Account, region: c.Region, name: name, created: now, resources: map[string]*resource{},
		id: fmt.Sprintf("arn:aws:cloudformation:%s:%s:stack/%s/%s", c.Region, c.Account, name, uuid.NewString()),
	}
	s.stacks = append(s.stacks, st)
	return st
}

// stackOfLocked returns the stack of a call: by id, also a deleted one, or by name.
func (s *Service) stackOfLocked(c *aws.Call) (*stack, *aws.Fault) {
	name := c.Form.Get(stackParameter)
	if st := s.lookupLocked(c, name); st != nil {
		return st, nil
	}
	return nil, invalid("Stack with id %s does not exist", name)
}

func (s *Service) lookupLocked(c *aws.Call, name string) *stack {
	for _, st := range s.stacks {
		if st.account == c.Account && st.region == c.Region && (st.id == name || st.name == name && st.status != deleteComplete) {
			return st
		}
	}
	return nil
}

// set sets the status of a stack.
func (st *stack) set(status, reason string, now time.Time) {
	st.status, st.reason = status, reason
	st.event(event{logical: st.name, physical: st.id, kind: stackType, status: status, reason: reason, at: now})
}

func (st *stack) event(e event) {
	e.id = uuid.NewString()
	st.events = append(st.events, e)
}

type (
	describedStack struct {
		StackID           string `xml:"StackId"`
		StackName         string
		Description       string `xml:",omitempty"`
		CreationTime      string
		LastUpdatedTime   string `xml:",omitempty"`
		DeletionTime      string `xml:",omitempty"`
		StackStatus       string
		StackStatusReason string            `xml:",omitempty"`
		DisableRollback   bool              `xml:"DisableRollback"`
		Capabilities      []string          `xml:"Capabilities>member"`
		Tags              []tag             `xml:"Tags>member"`
		Outputs           []describedOutput `xml:"Outputs>member"`
	}
	describedOutput struct {
		OutputKey, OutputValue string
		Description            string `xml:",omitempty"`
	}
)

func (s *Service) describeStacksLocked(c *aws.Call) (any, *aws.Fault) {
	var found []*stack
	if c.Form.Has(stackParameter) {
		st, fault := s.stackOfLocked(c)
		if fault != nil {
			return nil, fault
		}
		found = []*stack{st}
	} else {
		for _, st := range s.stacks {
			if st.account == c.Account && st.region == c.Region && st.status != deleteComplete {
				found = append(found, st)
			}
		}
	}
	page, next, fault := pageOf(c, found, s.page)
	if fault != nil {
		return nil, fault
	}
	var all []describedStack
	for _, st := range page {
		all = append(all, st.described())
	}
	return struct {
		Stacks    []describedStack `xml:"Stacks>member"`
		NextToken string           `xml:",omitempty"`
	}{all, next}, nil
}

func (st *stack) described() describedStack {
	d := describedStack{
		StackID: st.id, StackName: st.name, CreationTime: timestamp(st.created), StackStatus: st.status, StackStatusReason: st.reason,
		Capabilities: st.capabilities, Tags: listOf(st.tags),
	}
	if !st.updated.IsZero() {
		d.LastUpdatedTime = timestamp(st.updated)
	}
	if !st.deleted.IsZero() {
		d.DeletionTime = timestamp(st.deleted)
	}
	if st.template == nil {
		return d
	}
	d.Description = st.template.description
	for _, name := range slices.Sorted(maps.Keys(st.outputs)) {
		d.Outputs = append(d.Outputs, describedOutput{name, st.outputs[name], st.template.outputs[name].description})
	}
	return d
}

func listOf(tags map[string]string) []tag {
	var all []tag
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		all = append(all, tag{key, tags[key]})
	}
	return all
}

type describedEvent struct {
	StackID              string `xml:"StackId"`
	EventID              string `xml:"EventId"`
	StackName            string
	LogicalResourceID    string `xml:"LogicalResourceId"`
	PhysicalResourceID   string `xml:"PhysicalResourceId"`
	ResourceType         string
	Timestamp            string
	ResourceStatus       string
	ResourceStatusReason string `xml:",omitempty"`
}

func (s *Service) describeEventsLocked(c *aws.Call) (any, *aws.Fault) {
	st, fault := s.stackOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	newest := slices.Clone(st.events)
	slices.Reverse(newest)
	page, next, fault := pageOf(c, newest, s.page)
	if fault != nil {
		return nil, fault
	}
	var all []describedEvent
	for _, e := range page {
		all = append(all, describedEvent{st.id, e.id, st.name, e.logical, e.physical, e.kind, timestamp(e.at), e.status, e.reason})
	}
	return struct {
		StackEvents []describedEvent `xml:"StackEvents>member"`
		NextToken   string           `xml:",omitempty"`
	}{all, next}, nil
}

type describedResource struct {
	StackID              string `xml:"StackId,omitempty"`
	StackName            string `xml:",omitempty"`
	LogicalResourceID    string `xml:"LogicalResourceId"`
	PhysicalResourceID   string `xml:"PhysicalResourceId"`
	ResourceType         string
	Timestamp            string `xml:",omitempty"`
	LastUpdatedTimestamp string `xml:",omitempty"`
	ResourceStatus       string
	ResourceStatusReason string `xml:",omitempty"`
}

func (s *Service) describeResourcesLocked(c *aws.Call) (any, *aws.Fault) {
	st, fault := s.stackOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	only := c.Form.Get(logicalParameter)
	var all []describedResource
	for _, logical := range slices.Sorted(maps.Keys(st.resources)) {
		r := st.resources[logical]
		if only == "" || only == logical {
			all = append(all, describedResource{
				StackID: st.id, StackName: st.name, LogicalResourceID: logical, PhysicalResourceID: r.physical, ResourceType: r.kind,
				Timestamp: timestamp(r.updated), ResourceStatus: r.status, ResourceStatusReason: r.reason,
			})
		}
	}
	if only != "" && len(all) == 0 {
		return nil, invalid("Resource %s does not exist for stack %s", only, st.name)
	}
	return struct {
		StackResources []describedResource `xml:"StackResources>member"`
	}{all}, nil
}

func (s *Service) listResourcesLocked(c *aws.Call) (any, *aws.Fault) {
	st, fault := s.stackOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	page, next, fault := pageOf(c, slices.Sorted(maps.Keys(st.resources)), s.page)
	if fault != nil {
		return nil, fault
	}
	var all []describedResource
	for _, logical := range page {
		r := st.resources[logical]
		all = append(all, describedResource{
			LogicalResourceID: logical, PhysicalResourceID: r.physical, ResourceType: r.kind, LastUpdatedTimestamp: timestamp(r.updated),
			ResourceStatus: r.status, ResourceStatusReason: r.reason,
		})
	}
	return struct {
		StackResourceSummaries []describedResource `xml:"StackResourceSummaries>member"`
		NextToken              string              `xml:",omitempty"`
	}{all, next}, nil
}

func (s *Service) getTemplateLocked(c *aws.Call) (any, *aws.Fault) {
	var body string
	if c.Form.Has(changeSetParameter) {
		_, cs, fault := s.changeSetOfLocked(c)
		if fault != nil {
			return nil, fault
		}
		body = cs.template.body
	} else {
		st, fault := s.stackOfLocked(c)
		if fault != nil {
			return nil, fault
		}
		if st.template != nil {
			body = st.template.body
		}
	}
	return struct {
		TemplateBody    string
		StagesAvailable []string `xml:"StagesAvailable>member"`
	}{body, []string{"Original", "Processed"}}, nil
}

func (s *Service) deleteStackLocked(c *aws.Call) (any, *aws.Fault) {
	st := s.lookupLocked(c, c.Form.Get(stackParameter))
	now := c.Server.Clock().Now()
	switch {
	case st == nil || st.status == deleteComplete || st.status == deleteInProgress:
		return nil, nil // As AWS.
	case st.status == reviewInProgress:
		st.deleted, st.changeSets = now, nil
		st.set(deleteComplete, "", now)
		return nil, nil
	case strings.HasSuffix(st.status, inProgress):
		return nil, invalid("Stack [%s] cannot be deleted while in status %s", st.name, st.status)
	}
	st.set(deleteInProgress, "User Initiated", now)
	s.startLocked(c, st, func(r *run) { r.delete() })
	return nil, nil
}
