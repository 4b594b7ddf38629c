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
	// maxMembers keeps the queue's policy below AWS' limit of 50 principals, with a reserve.
	maxMembers = 40
)

// ErrInvalid is wrapped by every error of Options. The errors name fields by the flags of
// `capstan aws-eventing print`.
var ErrInvalid = errors.New("the template cannot be written")

// Options of the templates.
type Options struct {
	// Name of the queue, and prefix of every other name; DefaultName when empty.
	Name string
	// Members are the accounts, in addition to the queue's own, that send events to the queue.
	Members []string
	// Organization, such as o-a1b2c3d4e5: all of its accounts are members. Instead of Members.
	Organization string
	// HubRole is the name of the hub's own role, in the queue's account. It gets the
	// permissions of a consumer.
	HubRole string
	// AssumedBy is the ARN of the principal that may assume a role with the permissions of a
	// consumer. The template has this role when this is set. For a hub of another account.
	AssumedBy string
	// ExternalID that this role's trust policy requires.
	ExternalID string
}

var (
	// names leave room for the longest suffix and region in the 64 characters of the name of
	// a role or rule. Names of roles, rules and queues may have letters, digits and hyphens.
	names         = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,31}$`)
	accounts      = regexp.MustCompile(`^[0-9]{12}$`)
	organizations = regexp.MustCompile(`^o-[a-z0-9]{10,32}$`)
	roles         = regexp.MustCompile(`^[A-Za-z0-9_+=,.@-]{1,64}$`)
	principals    = regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/[A-Za-z0-9_+=,.@/-]{1,512}$`)
	externalIDs   = regexp.MustCompile(`^[A-Za-z0-9_+=,.@:/-]{2,1000}$`)
)

// complete returns the options with defaults, and sorted members. Errors: all invalid
// options, of class ErrInvalid.
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
			refuse("members", "%q is not an account id of 12 digits", member)
		case i > 0 && member == o.Members[i-1]:
			refuse("members", "account %s is listed twice; remove one", member)
		}
	}
	if len(o.Members) > maxMembers {
		refuse("members", "%d accounts exceed the limit of %d in the policy of a queue; set --organization to their organization instead", len(o.Members), maxMembers)
	}
	if o.Organization != "" {
		if !organizations.MatchString(o.Organization) {
			refuse("organization", "%q is not the id of an organization, such as o-a1b2c3d4e5", o.Organization)
		}
		if len(o.Members) > 0 {
			refuse("organization", "all of its accounts are members; remove --members")
		}
	}
	if o.HubRole != "" && !roles.MatchString(o.HubRole) {
		refuse("hub-role", "%q is not the name of a role; set the name without path or ARN, such as capstan-hub", o.HubRole)
	}
	if o.AssumedBy != "" {
		if !principals.MatchString(o.AssumedBy) {
			refuse("assumed-by", "%q is not the ARN of a role or user, such as arn:aws:iam::111122223333:role/capstan-hub", o.AssumedBy)
		}
		if o.HubRole != "" {
			refuse("assumed-by", "a hub either has the permissions, by --hub-role, or assumes a role that has them; remove one of the two")
		}
	}
	switch {
	case o.ExternalID != "" && o.AssumedBy == "":
		refuse("external-id", "it is only used when a role is assumed; also set --assumed-by")
	case o.ExternalID != "" && !externalIDs.MatchString(o.ExternalID):
		refuse("external-id", "%q must be 2 to 1000 letters, digits and _+=,.@:/-", o.ExternalID)
	}
	return o, errors.Join(errs...)
}
