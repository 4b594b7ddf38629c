package awsset

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

// DefaultStack is the name of the stack that docs/instance-state.md uses.
const DefaultStack = "capstan"

// ErrInvalid is wrapped by errors of Options. They name flags.
var ErrInvalid = errors.New("invalid flags")

// Options of the commands.
type Options struct {
	// Template are the options of the templates.
	Template provision.Options
	// MemberOf is the account with the queue, if the caller's account only sends to it.
	MemberOf string
	// Regions; the region of the SDK when empty.
	Regions []string
	// Stack is the name of the stacks; DefaultStack when empty.
	Stack string
	// Profile of the files of the SDK.
	Profile string
	// RoleARN is assumed for all calls.
	RoleARN string
	// MemberRole is the name of the role that is assumed in each of Template.Members.
	MemberRole string
	// Account must be the caller's own; not checked when empty.
	Account string
	// Version of this program, for the user agent.
	Version string
	// Poll is the interval at which the progress of a stack and a test event are read; a second when 0.
	Poll time.Duration
}

var (
	accountIDs  = regexp.MustCompile(`^[0-9]{12}$`)
	regionNames = regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-[0-9]{1,2}$`)
	stackNames  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,127}$`)
	roleARNs    = regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]{1,512}$`)
	roleNames   = regexp.MustCompile(`^[A-Za-z0-9_+=,.@/-]{1,512}$`)
)

// Validate returns all errors of the options, and of the templates. It makes no call.
func (o Options) Validate() error {
	var errs []error
	refuse := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: --%s: %s", ErrInvalid, flag, fmt.Sprintf(format, args...)))
	}
	if o.MemberOf == "" {
		_, err := provision.Hub(o.Template)
		errs = append(errs, err)
	} else {
		_, err := provision.Member(o.Template, o.MemberOf)
		errs = append(errs, err)
	}
	for i, region := range o.Regions {
		switch {
		case !regionNames.MatchString(region):
			refuse("regions", "%q is not the name of a region, such as eu-west-1", region)
		case slices.Contains(o.Regions[:i], region):
			refuse("regions", "%s is listed twice; remove one", region)
		}
	}
	if o.Stack != "" && !stackNames.MatchString(o.Stack) {
		refuse("stack-name", "%q must be 1 to 128 letters, digits and hyphens, the first a letter", o.Stack)
	}
	if o.RoleARN != "" && !roleARNs.MatchString(o.RoleARN) {
		refuse("role-arn", "%q is not the ARN of a role, such as arn:aws:iam::111122223333:role/admin", o.RoleARN)
	}
	if o.MemberRole != "" {
		if !roleNames.MatchString(o.MemberRole) {
			refuse("member-role", "%q is not the name of a role", o.MemberRole)
		}
		if len(o.Template.Members) == 0 {
			refuse("member-role", "it is assumed in the accounts of --members; also set --members")
		}
	}
	if o.Account != "" && !accountIDs.MatchString(o.Account) {
		refuse("account", "%q is not an account id of 12 digits", o.Account)
	}
	return errors.Join(errs...)
}

// name returns the name of the queue.
func (o Options) name() string {
	if o.Template.Name == "" {
		return provision.DefaultName
	}
	return o.Template.Name
}

func (o Options) stack() string {
	if o.Stack == "" {
		return DefaultStack
	}
	return o.Stack
}

func (o Options) poll() time.Duration {
	if o.Poll == 0 {
		return time.Second
	}
	return o.Poll
}

// command returns a command line of capstan for a target. Another account's command has no flags of
// the caller's own credentials.
func (o Options) command(verb string, t *Target) string {
	args := []string{"capstan aws-eventing", verb, "--regions=" + t.Region}
	flag := func(name, value string) {
		if value != "" {
			args = append(args, "--"+name+"="+value)
		}
	}
	if o.name() != provision.DefaultName {
		flag("name", o.name())
	}
	if o.stack() != DefaultStack {
		flag("stack-name", o.stack())
	}
	direct := t.Account == t.caller
	if t.Member() && (o.MemberOf != "" || o.MemberRole == "") {
		flag("member-of", t.QueueAccount)
	} else {
		flag("members", strings.Join(o.Template.Members, ","))
		flag("organization", o.Template.Organization)
		flag("hub-role", o.Template.HubRole)
		flag("assumed-by", o.Template.AssumedBy)
		flag("external-id", o.Template.ExternalID)
		flag("member-role", o.MemberRole)
		direct = true
	}
	if direct {
		flag("profile", o.Profile)
		flag("role-arn", o.RoleARN)
	}
	return strings.Join(args, " ")
}
