// Package ec2 simulates the query API of EC2 for playground/aws: DescribeInstanceTypes.
//
// Contract: each region offers the instance types of New or Offer. New uses Fixtures,
// which are real instance types (instance_types.json, with the source of each). Other
// regions do not exist. Pages, filters and the errors for invalid parameters are those of
// EC2. Faults of any service (throttling, denied calls, hanging calls) are Rules of the
// aws.Server.
//
// Trade-offs: instance-type is the only filter, as the hub uses no other one. Another
// filter is an error; it is never ignored.
package ec2
