package cloudformation

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/internal/wire"
)

// Statuses of change sets that stacks do not have.
const (
	available         = "AVAILABLE"
	unavailable       = "UNAVAILABLE"
	executeInProgress = "EXECUTE_IN_PROGRESS"
	executeComplete   = "EXECUTE_COMPLETE"
	executeFailed     = "EXECUTE_FAILED"
	failed            = "FAILED"
)

const (
	typeCreate = "CREATE"
	typeUpdate = "UPDATE"
	// noChanges is the reason of a change set without changes.
	noChanges = "The submitted information didn't contain changes. Submit different information to create a change set."
)

// changeSet of a stack. Service.mu protects it.
type changeSet struct {
	name, id, description     string
	create                    bool
	status, reason, execution string
	created                   time.Time
	capabilities              []string
	tags                      map[string]string
	template                  *template
	changes                   []change
	// mode is the deployment mode; drifted are the resources that it reverts, by logical id.
	mode    string
	drifted map[string]drift
}

var stackName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,127}$`)

func (s *Service) createChangeSetLocked(c *aws.Call) (any, *aws.Fault) {
	name, set := c.Form.Get(stackParameter), c.Form.Get(changeSetParameter)
	if !stackName.MatchString(set) || !isARN(name) && !stackName.MatchString(name) {
		return nil, invalid("1 validation error detected: the name of the stack or change set does not satisfy the constraint [a-zA-Z][-a-zA-Z0-9]*")
	}
	t, err := parse(c.Form.Get(bodyParameter))
	if err != nil {
		return nil, invalid("%s", err)
	}
	mode := c.Form.Get(modeParameter)
	if c.Form.Has(modeParameter) && mode != revertDrift {
		return nil, invalid("1 validation error detected: Value '%s' at 'deploymentMode' failed to satisfy constraint: Member must satisfy enum value set: [%s]", mode, revertDrift)
	}
	cs := &changeSet{
		name: set, mode: mode, description: c.Form.Get(descriptionKey), template: t, capabilities: numbered(c.Form, capabilitiesParameter),
		id:     fmt.Sprintf("arn:aws:cloudformation:%s:%s:changeSet/%s/%s", c.Region, c.Account, set, uuid.NewString()),
		status: createInProgress, execution: unavailable, created: c.Server.Clock().Now(),
	}
	if fault := checkCapabilities(t, cs.capabilities); fault != nil {
		return nil, fault
	}
	st, fault := s.stackForLocked(c, cs)
	if fault != nil {
		return nil, fault
	}
	cs.tags = formTags(c)
	if cs.tags == nil {
		cs.tags = st.tags
	}
	st.changeSets = append(st.changeSets, cs)
	s.startLocked(c, st, func(r *run) { r.plan(cs) })
	return struct {
		ID      string `xml:"Id"`
		StackID string `xml:"StackId"`
	}{cs.id, st.id}, nil
}

// stackForLocked returns the stack of a new change set. It adds one for the type CREATE.
func (s *Service) stackForLocked(c *aws.Call, cs *changeSet) (*stack, *aws.Fault) {
	name := c.Form.Get(stackParameter)
	st := s.lookupLocked(c, name)
	if st != nil && slices.ContainsFunc(st.changeSets, func(other *changeSet) bool { return other.name == cs.name }) {
		return nil, wire.Bad("AlreadyExistsException", "ChangeSet %s already exists", cs.id)
	}
	switch c.Form.Get(typeParameter) {
	case typeCreate:
		cs.create = true
		switch {
		case st != nil && st.status != reviewInProgress:
			return nil, invalid("Stack [%s] already exists and cannot be created again with the changeSet [%s].", name, cs.name)
		case st == nil && isARN(name):
			return nil, invalid("Stack [%s] does not exist", name)
		case st == nil:
			st = s.addLocked(c, name)
			st.set(reviewInProgress, "User Initiated", cs.created)
		}
	case typeUpdate, "":
		switch {
		case st == nil || st.status == reviewInProgress:
			return nil, invalid("Stack [%s] does not exist", name)
		case !updatable(st.status):
			return nil, invalid("Stack:%s is in %s state and can not be updated.", st.id, st.status)
		}
	default:
		return nil, invalid("The ChangeSetType %s is not simulated", c.Form.Get(typeParameter))
	}
	return st, nil
}

func updatable(status string) bool {
	return slices.Contains([]string{createComplete, updateComplete, updateRollbackComplete}, status)
}

// checkCapabilities returns a fault if a template needs another capability.
func checkCapabilities(t *template, capabilities []string) *aws.Fault {
	const anyName, ownName = "CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"
	need := ""
	for _, d := range t.resources {
		k := kinds[d.kind]
		if !k.iam {
			continue
		}
		if _, named := d.properties[k.named]; named {
			need = ownName
		} else if need == "" {
			need = anyName
		}
	}
	if need == "" || slices.Contains(capabilities, need) || slices.Contains(capabilities, ownName) {
		return nil
	}
	return wire.Bad("InsufficientCapabilitiesException", "Requires capabilities : [%s]", need)
}

// formTags returns the tags of a call; nil without any.
func formTags(c *aws.Call) map[string]string {
	var tags map[string]string
	for n := 1; c.Form.Has(fmt.Sprintf("%s%d.Key", tagsParameter, n)); n++ {
		if tags == nil {
			tags = map[string]string{}
		}
		tags[c.Form.Get(fmt.Sprintf("%s%d.Key", tagsParameter, n))] = c.Form.Get(fmt.Sprintf("%s%d.Value", tagsParameter, n))
	}
	return tags
}

// plan computes the changes of a change set.
func (r *run) plan(cs *changeSet) {
	if r.ended() {
		return
	}
	var drifted map[string]drift
	var err error
	if cs.mode == revertDrift {
		drifted, err = r.drift()
	}
	if r.ctx.Err() != nil {
		return
	}
	r.service.mu.Lock()
	defer r.service.mu.Unlock()
	st := r.stack
	if err != nil {
		cs.status, cs.reason, cs.execution = failed, err.Error(), unavailable
		return
	}
	cs.drifted = drifted
	cs.changes = changesOf(st, cs.template, cs.tags, drifted)
	cs.status, cs.execution = createComplete, available
	if !cs.create && len(cs.changes) == 0 && !outputsDiffer(st.template, cs.template) && maps.Equal(st.tags, cs.tags) {
		cs.status, cs.reason, cs.execution = failed, noChanges, unavailable
		return
	}
	for _, c := range cs.changes {
		if had := st.resources[c.logical]; had != nil && c.action == modifyAction && had.kind != c.kind {
			cs.status, cs.execution = failed, unavailable
			cs.reason = fmt.Sprintf("Update of resource type is not permitted. The new template modifies resource type of the following resources: [%s]", c.logical)
		}
	}
}

// changeSetOfLocked returns the change set of a call, by id, or by name and stack.
func (s *Service) changeSetOfLocked(c *aws.Call) (*stack, *changeSet, *aws.Fault) {
	name := c.Form.Get(changeSetParameter)
	if !isARN(name) {
		st, fault := s.stackOfLocked(c)
		if fault != nil {
			return nil, nil, fault
		}
		for _, cs := range st.changeSets {
			if cs.name == name {
				return st, cs, nil
			}
		}
	}
	for _, st := range s.stacks {
		for _, cs := range st.changeSets {
			if cs.id == name && st.account == c.Account && st.region == c.Region {
				return st, cs, nil
			}
		}
	}
	f := wire.Bad("ChangeSetNotFound", "ChangeSet [%s] does not exist", name)
	f.Status = http.StatusNotFound
	return nil, nil, f
}

type (
	describedChangeSet struct {
		ChangeSetName   string
		ChangeSetID     string `xml:"ChangeSetId"`
		StackID         string `xml:"StackId"`
		StackName       string
		Description     string `xml:",omitempty"`
		DeploymentMode  string `xml:",omitempty"`
		CreationTime    string
		ExecutionStatus string
		Status          string
		StatusReason    string            `xml:",omitempty"`
		Capabilities    []string          `xml:"Capabilities>member"`
		Tags            []tag             `xml:"Tags>member"`
		Changes         []describedChange `xml:"Changes>member"`
		NextToken       string            `xml:",omitempty"`
	}
	describedChange struct {
		Type           string
		ResourceChange resourceChange
	}
	resourceChange struct {
		Action             string
		LogicalResourceID  string `xml:"LogicalResourceId"`
		PhysicalResourceID string `xml:"PhysicalResourceId,omitempty"`
		ResourceType       string
		Replacement        string `xml:",omitempty"`
		// ResourceDriftStatus is only set in drift-aware change sets.
		ResourceDriftStatus string         `xml:",omitempty"`
		Scope               []string       `xml:"Scope>member"`
		Details             []changeDetail `xml:"Details>member"`
	}
	changeDetail struct {
		Target struct {
			Attribute          string
			Name               string `xml:",omitempty"`
			RequiresRecreation string
		}
		Evaluation, ChangeSource string
	}
)

func (s *Service) describeChangeSetLocked(c *aws.Call) (any, *aws.Fault) {
	st, cs, fault := s.changeSetOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	page, next, fault := pageOf(c, cs.changes, s.page)
	if fault != nil {
		return nil, fault
	}
	out := describedChangeSet{
		ChangeSetName: cs.name, ChangeSetID: cs.id, StackID: st.id, StackName: st.name, Description: cs.description, DeploymentMode: cs.mode, CreationTime: timestamp(cs.created),
		ExecutionStatus: cs.execution, Status: cs.status, StatusReason: cs.reason, Capabilities: cs.capabilities, Tags: listOf(cs.tags), NextToken: next,
	}
	for _, ch := range page {
		out.Changes = append(out.Changes, describedChange{"Resource", ch.described()})
	}
	return out, nil
}

func (c change) described() resourceChange {
	r := resourceChange{Action: c.action, LogicalResourceID: c.logical, PhysicalResourceID: c.physical, ResourceType: c.kind, Replacement: c.replacement, ResourceDriftStatus: c.drift}
	for _, d := range c.details {
		one := changeDetail{Evaluation: d.evaluation, ChangeSource: d.source}
		one.Target.Attribute, one.Target.Name, one.Target.RequiresRecreation = propertiesKey, d.property, d.recreation
		scope := propertiesKey
		if d.property == tagsKey {
			scope, one.Target.Attribute, one.Target.Name = tagsKey, tagsKey, ""
		}
		if !slices.Contains(r.Scope, scope) {
			r.Scope = append(r.Scope, scope)
		}
		r.Details = append(r.Details, one)
	}
	return r
}

func (s *Service) executeChangeSetLocked(c *aws.Call) (any, *aws.Fault) {
	st, cs, fault := s.changeSetOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	ready := updatable(st.status)
	if cs.create {
		ready = st.status == reviewInProgress
	}
	if cs.execution != available || !ready {
		status := cs.status
		if cs.status == createComplete {
			status = cs.execution
		}
		return nil, wire.Bad("InvalidChangeSetStatus", "ChangeSet [%s] cannot be executed in its current status of [%s]", cs.id, status)
	}
	now := c.Server.Clock().Now()
	// AWS deletes the other change sets of the stack.
	st.changeSets = []*changeSet{cs}
	cs.execution = executeInProgress
	st.capabilities = cs.capabilities
	if cs.create {
		st.tags, st.template = cs.tags, cs.template
		st.set(createInProgress, "User Initiated", now)
		s.startLocked(c, st, func(r *run) { r.create(cs) })
		return nil, nil
	}
	st.updated = now
	st.set(updateInProgress, "User Initiated", now)
	s.startLocked(c, st, func(r *run) { r.update(cs) })
	return nil, nil
}

func (s *Service) deleteChangeSetLocked(c *aws.Call) (any, *aws.Fault) {
	st, cs, fault := s.changeSetOfLocked(c)
	switch {
	case fault != nil && fault.Code == "ChangeSetNotFound":
		return nil, nil // As AWS.
	case fault != nil:
		return nil, fault
	case cs.execution == executeInProgress:
		return nil, wire.Bad("InvalidChangeSetStatus", "ChangeSet [%s] cannot be deleted in its current status of [%s]", cs.id, cs.execution)
	}
	st.changeSets = slices.DeleteFunc(st.changeSets, func(other *changeSet) bool { return other == cs })
	return nil, nil
}
