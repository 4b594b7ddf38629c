// Package cloudformation simulates the stacks and change sets of CloudFormation for
// playground/aws, over the query protocol, for the real SDK.
//
// Purpose: Capstan's templates are deployed as in AWS, with changes, failures and rollbacks.
//
// Contract: a stack belongs to an account and a region. Change sets of the types CREATE and
// UPDATE create, change, replace and delete real resources of the other simulated services:
// AWS::SQS::Queue, AWS::SQS::QueuePolicy, AWS::Events::Rule, AWS::IAM::Role and
// AWS::IAM::ManagedPolicy. The calls of these services have the caller of the change set's
// execution, so that Rules of the aws.Server apply to them. Ref, Fn::GetAtt, Fn::Sub,
// DependsOn and the pseudo parameters AWS::AccountId, AWS::Region, AWS::Partition and
// AWS::StackName have the effects of AWS. Another type, property, function or parameter of a
// call is a ValidationError that names it. A resource that exists outside of the stack fails
// with "already exists". A failure rolls the stack back.
//
// A change set with the deployment mode REVERT_DRIFT reads the live state of the stack's
// resources. It also has those as Modify whose state differs from the properties that the stack
// applied last, and those that do not exist, with the replacement True. Its execution brings
// them to the template. A property that the template does not have cannot drift. A failure
// restores the live state from before.
//
// The work of CreateChangeSet, ExecuteChangeSet and DeleteStack runs in aws.Server.Go after the
// response, and ends when the Server stops. Options.Pace is the time before each step of it, by
// the Server's clock.
//
// Locking: Service.mu protects all stacks. It is not locked while another service is called.
//
// Trade-offs: resources are created one after the other, in AWS at the same time. Stack
// tags are set on queues only, as the other simulated services have no tags. Parameters,
// conditions, imports, nested stacks, deletion policies and DetectStackDrift do not exist. The
// change SyncWithActual does not exist: a template that was adapted to the live state has the
// change Modify. A failure to delete a replaced or removed resource of an update does not fail
// the stack, as in AWS.
package cloudformation
