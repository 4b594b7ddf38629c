package cli

import (
	"github.com/spf13/cobra"

	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

func newAWSEventing() *cobra.Command {
	c := &cobra.Command{
		Use:   "aws-eventing",
		Short: "Set up the AWS resources by which the hub follows instances",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newAWSEventingPrint())
	return c
}

func newAWSEventingPrint() *cobra.Command {
	var o provision.Options
	var memberOf string
	c := &cobra.Command{
		Use:   "print",
		Short: "Print the CloudFormation template of the queue, its rules and permissions",
		Long: `Print writes a CloudFormation template to standard output; it makes no connection.
By default it prints the template of the account that has the queue: an SQS queue, its
dead-letter queue, the policy for senders, two EventBridge rules that fill the queue,
and the permissions that the hub needs. With --member-of it prints the template of an
account that sends its events to another account's queue. A rule and its queue are
always in one region: deploy the first template to each region that has instances, the
second one to each region of each member account. docs/instance-state.md shows the
EventingBackend for the queue.`,
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
			if c.Flags().Changed("member-of") {
				out, err = provision.Member(o, memberOf)
			} else {
				out, err = provision.Hub(o)
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
	f.StringVar(&o.Name, "name", provision.DefaultName, "name of the queue and prefix of the other names; must be the same in member accounts and in the queue's account")
	f.StringVar(&memberOf, "member-of", "", "id of the account that has the queue: print the template of an account that sends to it")
	f.StringSliceVar(&o.Members, "members", nil, "ids of further accounts that may send to the queue, comma-separated")
	f.StringVar(&o.Organization, "organization", "", "id of an organization, such as o-a1b2c3d4e5; each of its accounts may send to the queue; use it instead of --members")
	f.StringVar(&o.HubRole, "hub-role", "", "name of the hub's role in the queue's account; it gets permission to read the queue; when empty, attach the policy of the output ConsumerPolicyArn to the role")
	f.StringVar(&o.AssumedBy, "assumed-by", "", "ARN of the hub's role in another account; the template creates a role that it may assume, for roleArn of the EventingBackend")
	f.StringVar(&o.ExternalID, "external-id", "", "external id that is required to assume that role, for externalId of the EventingBackend")
	return c
}
