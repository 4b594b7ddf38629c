package cli

import (
	"github.com/spf13/cobra"

	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

func newAWSEventing() *cobra.Command {
	c := &cobra.Command{
		Use:   "aws-eventing",
		Short: "Set up what the hub follows instances by in AWS",
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
		Short: "Print the CloudFormation template of queue, rules and rights",
		Long: `Print writes a CloudFormation template to standard output; nothing is contacted.
By default it is that of the account which has the queue: a queue and its dead letters
in SQS, who may send there, two rules of EventBridge that fill it, and the few rights
that the hub needs. With --member-of it is that of an account whose events go to
another account's queue. Deploy the one to each region that has instances, the other to
each region of each member: a rule and its queue are always of one region. What an
EventingBackend then says stands in docs/instance-state.md.`,
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
	f.StringVar(&o.Name, "name", provision.DefaultName, "name of the queue, and what the other names begin with; the same for members as for the queue's account")
	f.StringVar(&memberOf, "member-of", "", "id of the account that has the queue: print the template of an account that sends to it")
	f.StringSliceVar(&o.Members, "members", nil, "ids of the accounts, beside its own, that may send to the queue, with commas between")
	f.StringVar(&o.Organization, "organization", "", "id of the organization of which every account may send to the queue, such as o-a1b2c3d4e5; instead of --members")
	f.StringVar(&o.HubRole, "hub-role", "", "name of the role that the hub runs as, in the queue's account, which gets the rights to read the queue; when empty, attach the policy of the output ConsumerPolicyArn to it")
	f.StringVar(&o.AssumedBy, "assumed-by", "", "ARN of the role that the hub runs as in another account; a role that it may assume is made, for roleArn of the EventingBackend")
	f.StringVar(&o.ExternalID, "external-id", "", "external id that is asked for when that role is assumed, for externalId of the EventingBackend")
	return c
}
