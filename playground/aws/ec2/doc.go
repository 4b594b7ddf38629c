// Package ec2 is EC2's query API of the playground's AWS: DescribeInstanceTypes.
//
// Contract: each region offers the instance types that it was given, by default those
// of Fixtures, which are real ones (instance_types.json; the file says where each is
// from). A region that was not given does not exist. Pages, filters and the errors
// for bad parameters are EC2's; what every service can suffer (throttling, denial,
// silence) is injected into the Server.
//
// Trade-offs: of the filters there is instance-type alone, the one that the hub sends;
// another is an error, never ignored.
package ec2
