package provision

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
)

const (
	// DefaultName of the queue.
	DefaultName = "capstan"
	// maxMembers keeps the queue's policy within AWS' 50 principals, with some to spare.
	maxMembers = 40
)

// ErrInvalid is wrapped by every error of Options, which name their fields by the flags
// of `capstan aws-eventing print`.
var ErrInvalid = errors.New("no template can be made")

// Options of the templates.
type Options struct {
	// Name of the queue, and what every other name begins with; DefaultName when empty.
	Name string
	// Members are the accounts, beside the queue's own, whose events the queue takes.
	Members []string
	// Organization, such as o-a1b2c3d4e5, any account of which is a member; instead of
	// Members.
	Organization string
	// HubRole is the name of the role, in the queue's account, that the hub runs as: it
	// gets the rights of a consumer.
	HubRole string
	// AssumedBy is the ARN of the principal that may assume a role with the rights of a
	// consumer; the role is made when this is set. For a hub of another account.
	AssumedBy string
	// ExternalID that this role's trust policy asks for.
	ExternalID string
}

var (
	// names leave room for the longest suffix and region in the 64 characters of a role
	// and of a rule; both they and queues may have letters, digits and hyphens.
	names         = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,31}$`)
	accounts      = regexp.MustCompile(`^[0-9]{12}$`)
	organizations = regexp.MustCompile(`^o-[a-z0-9]{10,32}$`)
	roles         = regexp.MustCompile(`^[A-Za-z0-9_+=,.@-]{1,64}$`)
	principals    = regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/[A-Za-z0-9_+=,.@/-]{1,512}$`)
	externalIDs   = regexp.MustCompile(`^[A-Za-z0-9_+=,.@:/-]{2,1000}$`)
)

// complete options: defaults filled in, members sorted. Errors: all that is wrong, of
// class ErrInvalid.
func (o Options) complete() (Options, error) {
	if o.Name == "" {
		o.Name = DefaultName
	}
	o.Members = slices.Clone(o.Members)
	slices.Sort(o.Members)
	var errs []error
	refuse := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: --%s: %s", ErrInvalid, flag, fmt.Sprintf(format, args...)))
	}
	if !names.MatchString(o.Name) {
		refuse("name", "%q must be 1 to 32 letters, digits and hyphens, the first a letter", o.Name)
	}
	for i, member := range o.Members {
		switch {
		case !accounts.MatchString(member):
			refuse("members", "%q is no account id of 12 digits", member)
		case i > 0 && member == o.Members[i-1]:
			refuse("members", "account %s stands there twice", member)
		}
	}
	if len(o.Members) > maxMembers {
		refuse("members", "%d accounts do not fit into the policy of a queue, %d do; name the --organization that they are of", len(o.Members), maxMembers)
	}
	if o.Organization != "" {
		if !organizations.MatchString(o.Organization) {
			refuse("organization", "%q is no id of an organization, such as o-a1b2c3d4e5", o.Organization)
		}
		if len(o.Members) > 0 {
			refuse("organization", "its accounts are all members; leave out --members")
		}
	}
	if o.HubRole != "" && !roles.MatchString(o.HubRole) {
		refuse("hub-role", "%q is no name of a role; give the name without path or ARN, such as capstan-hub", o.HubRole)
	}
	if o.AssumedBy != "" {
		if !principals.MatchString(o.AssumedBy) {
			refuse("assumed-by", "%q is no ARN of a role or user, such as arn:aws:iam::111122223333:role/capstan-hub", o.AssumedBy)
		}
		if o.HubRole != "" {
			refuse("assumed-by", "a hub either has the rights, by --hub-role, or assumes a role that has them; leave one out")
		}
	}
	switch {
	case o.ExternalID != "" && o.AssumedBy == "":
		refuse("external-id", "it is asked for when a role is assumed; give --assumed-by, too")
	case o.ExternalID != "" && !externalIDs.MatchString(o.ExternalID):
		refuse("external-id", "%q must be 2 to 1000 letters, digits and _+=,.@:/-", o.ExternalID)
	}
	return o, errors.Join(errs...)
}
