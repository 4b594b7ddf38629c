package awsset

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

// Session has the caller's credentials.
type Session struct {
	Options
	// Caller is the ARN of the caller, and Account its account.
	Caller  string
	Account string

	partition string
	config    *awsconfig.Config
	// role of the options; zero for the credentials that the SDK finds.
	role awsconfig.Role
}

// sessionName of the roles that are assumed, for CloudTrail.
const sessionName = "capstan-aws-eventing"

// Target is a region of an account.
type Target struct {
	provision.Place
	// Caller is the ARN of the identity that calls AWS there.
	Caller string
	// QueueAccount is the account with the queue.
	QueueAccount string

	// caller is the account of the session.
	caller  string
	options *Options
	sqs     *sqs.Client
	events  *eventbridge.Client
	iam     *iam.Client
	stacks  *cloudformation.Client
}

// Member reports whether the account only sends to a queue of another one.
func (t *Target) Member() bool { return t.Account != t.QueueAccount }

// String names the target.
func (t *Target) String() string { return "account " + t.Account + ", region " + t.Region }

// Open reads the caller's credentials, assumes the role of the options, and asks STS for the
// caller. Errors: of class ErrInvalid, or a Failure.
func Open(ctx context.Context, o Options) (*Session, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	load := []func(*config.LoadOptions) error{config.WithDefaultRegion("")}
	if len(o.Regions) > 0 {
		load = append(load, config.WithRegion(o.Regions[0]))
	}
	if o.Profile != "" {
		load = append(load, config.WithSharedConfigProfile(o.Profile))
	}
	shared, err := awsconfig.Load(ctx, awsconfig.Options{Version: o.Version, LoadOptions: load})
	if err != nil {
		return nil, err
	}
	s := &Session{Options: o, config: shared}
	if shared.Region() == "" {
		shared.Close()
		return nil, fmt.Errorf("%w: --regions: no region is set; list the regions that have instances, or set AWS_REGION", ErrInvalid)
	}
	if len(o.Regions) == 0 {
		s.Regions = []string{shared.Region()}
	}
	if o.RoleARN != "" {
		s.role = awsconfig.Role{ARN: o.RoleARN, SessionName: sessionName}
	}
	if err := s.identify(ctx); err != nil {
		shared.Close()
		return nil, err
	}
	return s, nil
}

// Close closes idle connections.
func (s *Session) Close() { s.config.Close() }

// identify sets the caller, and refuses an account that the options exclude.
func (s *Session) identify(ctx context.Context) error {
	out, err := sts.NewFromConfig(s.config.In(s.config.Region(), s.role)).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		f := failure(err, "sts:GetCallerIdentity", "", s.config.Region())
		if s.RoleARN != "" && f.Kind == Denied {
			f.Action, f.Resource = "sts:AssumeRole", s.RoleARN
		}
		return f
	}
	s.Caller, s.Account = aws.ToString(out.Arn), aws.ToString(out.Account)
	s.partition = "aws"
	if parsed, err := arn.Parse(s.Caller); err == nil {
		s.partition = parsed.Partition
	}
	switch {
	case s.Options.Account != "" && s.Options.Account != s.Account:
		return fmt.Errorf("%w: --account: the credentials are those of %s in account %s, not in %s; use other ones (--profile, --role-arn), or change --account",
			ErrInvalid, s.Caller, s.Account, s.Options.Account)
	case s.MemberOf == s.Account:
		return fmt.Errorf("%w: --member-of: account %s is the caller's own (%s); use the credentials of the member, or omit --member-of for the account with the queue",
			ErrInvalid, s.Account, s.Caller)
	case slices.Contains(s.Template.Members, s.Account):
		return fmt.Errorf("%w: --members: account %s is the caller's own (%s), which has the queue; use the credentials of the account with the queue, or remove it",
			ErrInvalid, s.Account, s.Caller)
	}
	return nil
}

// Targets returns the regions of the account of the caller, and of the members if there is a role
// for them. The rows are about members that are not among them: the check says so, with the command
// for it.
func (s *Session) Targets(ctx context.Context) ([]*Target, []Row) {
	queueAccount := s.Account
	if s.MemberOf != "" {
		queueAccount = s.MemberOf
	}
	var targets []*Target
	var rows []Row
	for _, region := range s.Regions {
		targets = append(targets, s.target(s.role, s.Account, s.Caller, queueAccount, region))
	}
	for _, member := range slices.Sorted(slices.Values(s.Template.Members)) {
		for _, region := range s.Regions {
			t := s.target(s.role, member, "", queueAccount, region)
			if s.MemberRole == "" {
				rows = append(rows, Row{Account: member, Region: region, Item: ItemCaller, State: Skipped,
					Problem: "not checked: the account is a member, and --member-role is not set", Fix: s.command("check", t) + " # with credentials of " + member})
				continue
			}
			memberRole := fmt.Sprintf("arn:%s:iam::%s:role/%s", s.partition, member, s.MemberRole)
			role := awsconfig.Role{ARN: memberRole, SessionName: sessionName}.Through(s.role)
			t = s.target(role, member, "", queueAccount, region)
			out, err := sts.NewFromConfig(s.config.In(region, role)).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
			if err != nil {
				f := failure(err, "sts:AssumeRole", s.Caller, region)
				f.Resource = memberRole
				rows = append(rows, f.row(t, ItemCaller))
				continue
			}
			t.Caller = aws.ToString(out.Arn)
			targets = append(targets, t)
		}
	}
	return targets, rows
}

func (s *Session) target(role awsconfig.Role, account, caller, queueAccount, region string) *Target {
	in := s.config.In(region, role)
	return &Target{
		Place: provision.Place{Partition: s.partition, Region: region, Account: account}, Caller: caller, QueueAccount: queueAccount, caller: s.Account, options: &s.Options,
		sqs: sqs.NewFromConfig(in), events: eventbridge.NewFromConfig(in), iam: iam.NewFromConfig(in), stacks: cloudformation.NewFromConfig(in),
	}
}

// template returns the template of the target.
func (t *Target) template() (string, error) {
	var raw []byte
	var err error
	if t.Member() {
		raw, err = provision.Member(provision.Options{Name: t.options.Template.Name}, t.QueueAccount)
	} else {
		raw, err = provision.Hub(t.options.Template)
	}
	return string(raw), err
}

// set returns the resources of the template; physical has the ids that AWS generated.
func (t *Target) set(physical map[string]string) (*provision.Set, error) {
	if t.Member() {
		return provision.MemberSet(provision.Options{Name: t.options.Template.Name}, t.QueueAccount, t.Place)
	}
	return provision.HubSet(t.options.Template, t.Place, physical)
}
