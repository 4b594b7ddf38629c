// Package aws simulates AWS on a loopback port, for the playground and for tests. It
// implements the wire protocols of the services that the hub calls, for the real SDK.
//
// Purpose: the hub runs without an AWS account, and without a replaced part. Server.Env
// returns the environment that makes the SDKs and tools of AWS call this server.
//
// Contract: Start returns when the port accepts connections; Stop ends every call in
// progress and every goroutine. The caller passes the services to Start: ec2, sqs, sts,
// events, iam and cloudformation.
// The Server finds the service of a call by the scope of its signature, as AWS does, or by
// the action if the call is not signed. A Rule makes calls fail, hang or wait. The Server
// counts every call by service, action, region, caller and result. All methods may be
// called by several goroutines at the same time.
//
// The Server reads signatures but does not verify them. An access key must be the root's,
// one of AddKey, or one that AssumeRole issued and that has not expired by the Server's
// clock. A call belongs to the account of its caller. Account exists from the start; AddKey
// adds others. The Server does not evaluate the policies of callers: they may do everything
// that no Rule denies (Rule.Deny).
//
// Locking: Server.mu protects rules, sessions and records. It is never locked while a
// service answers, a rule hangs or bytes are written.
package aws
