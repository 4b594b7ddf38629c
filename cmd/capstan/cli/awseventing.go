package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capstan-hub/capstan/cmd/capstan/awsset"
	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

func newAWSEventing() *cobra.Command {
	c := &cobra.Command{
		Use:   "aws-eventing",
		Short: "Set up the AWS resources by which the hub follows instances",
		Args:  noCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newAWSEventingPrint(), newAWSEventingCheck(), newAWSEventingApply(), newAWSEventingDelete())
	return c
}

// templateFlags registers the flags of the templates.
func templateFlags(f *pflag.FlagSet, o *awsset.Options) {
	f.StringVar(&o.Template.Name, "name", provision.DefaultName, "name of the queue and prefix of the other names; must be the same in member accounts and in the queue's account")
	f.StringVar(&o.MemberOf, "member-of", "", "id of the account that has the queue: for an account that sends to it")
	f.StringSliceVar(&o.Template.Members, "members", nil, "ids of further accounts that may send to the queue, comma-separated")
	f.StringVar(&o.Template.Organization, "organization", "", "id of an organization, such as o-a1b2c3d4e5; each of its accounts may send to the queue; use it instead of --members")
	f.StringVar(&o.Template.HubRole, "hub-role", "", "name of the hub's role in the queue's account; it gets permission to read the queue; when empty, attach the policy of the output ConsumerPolicyArn to the role")
	f.StringVar(&o.Template.AssumedBy, "assumed-by", "", "ARN of the hub's role in another account; the template creates a role that it may assume, for roleArn of the EventingBackend")
	f.StringVar(&o.Template.ExternalID, "external-id", "", "external id that is required to assume that role, for externalId of the EventingBackend")
}

// awsFlags are the values of the flags of the commands that call AWS.
type awsFlags struct {
	awsset.Options
	output  string
	timeout time.Duration
}

var awsOutputs = []string{outputTable, outputJSON}

// register registers the flags.
func (a *awsFlags) register(c *cobra.Command, timeout time.Duration) {
	f := c.Flags()
	f.SortFlags = false
	templateFlags(f, &a.Options)
	f.StringSliceVar(&a.Regions, "regions", nil, "regions, comma-separated; the region of the AWS SDK when empty")
	f.StringVar(&a.Stack, "stack-name", awsset.DefaultStack, "name of the CloudFormation stack in each region")
	f.StringVar(&a.Profile, "profile", "", "profile of the AWS SDK's files; the credentials are those that the SDK finds when empty")
	f.StringVar(&a.RoleARN, "role-arn", "", "ARN of a role to assume for all calls")
	f.StringVar(&a.MemberRole, "member-role", "", "name of a role to assume in each account of --members, whose stacks are then included")
	f.StringVar(&a.Account, "account", "", "account id of the credentials: the command refuses those of another account")
	f.StringVarP(&a.output, "output", "o", outputTable, "table or json")
	f.DurationVar(&a.timeout, "timeout", timeout, "time limit of the command")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(awsOutputs, cobra.ShellCompDirectiveNoFileComp))
}

// open checks the flags, and reads the caller's credentials.
func (a *awsFlags) open(ctx context.Context) (*awsset.Session, error) {
	if err := oneOf("output", a.output, awsOutputs); err != nil {
		return nil, err
	}
	a.Version = version()
	return awsset.Open(ctx, a.Options)
}

func newAWSEventingPrint() *cobra.Command {
	var o awsset.Options
	var rights bool
	c := &cobra.Command{
		Use:   "print",
		Short: "Print the CloudFormation template of the queue, its rules and permissions",
		Long: `Print writes a CloudFormation template to standard output; it makes no connection.
By default it prints the template of the account that has the queue: an SQS queue, its
dead-letter queue, the policy for senders, two EventBridge rules that fill the queue,
and the permissions that the hub needs. With --member-of it prints the template of an
account that sends its events to another account's queue. A rule and its queue are
always in one region: deploy the first template to each region that has instances, the
second one to each region of each member account. ` + "`capstan aws-eventing apply`" + ` deploys the
same templates. docs/instance-state.md shows the EventingBackend for the queue.`,
		Example: `  # One account. The hub runs as the role capstan-hub of it.
  capstan aws-eventing print --hub-role=capstan-hub >queue.yaml
  aws cloudformation deploy --region=eu-west-1 --stack-name=capstan --template-file=queue.yaml --capabilities=CAPABILITY_IAM

  # The events of two more accounts go to the queue of 111122223333.
  capstan aws-eventing print --hub-role=capstan-hub --members=444455556666,777788889999 >queue.yaml
  capstan aws-eventing print --member-of=111122223333 >member.yaml
  aws cloudformation deploy --region=eu-west-1 --stack-name=capstan --template-file=member.yaml --capabilities=CAPABILITY_NAMED_IAM

  # The hub runs elsewhere, and assumes a role to read the queue.
  capstan aws-eventing print --assumed-by=arn:aws:iam::111122223333:role/capstan-hub --external-id=capstan`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var out []byte
			var err error
			switch {
			case rights:
				out, err = awsset.CallerPolicy()
			case c.Flags().Changed("member-of"):
				out, err = provision.Member(o.Template, o.MemberOf)
			default:
				out, err = provision.Hub(o.Template)
			}
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(out)
			return err
		},
	}
	f := c.Flags()
	f.SortFlags = false
	templateFlags(f, &o)
	f.BoolVar(&rights, "caller-policy", false, "print an IAM policy with the actions that the caller of check, apply and delete needs, in place of a template")
	return c
}
