// Package aws is a small AWS on a port of loopback, for the playground and for tests:
// it speaks the wire protocols of the services that the hub calls, to the real SDK.
//
// Purpose: nothing in the hub is replaced to try it without an account. A program is
// pointed here by the environment that AWS' own SDKs and tools read (Server.Env).
//
// Contract: Start returns when the port answers; Stop ends every call under way and
// every goroutine. The services (ec2, sts, and what is added beside them) are
// given to Start; a call finds its service by the scope of its signature, as with
// AWS, or, unsigned, by the action. Rules make any call of any service fail, hang or
// wait; every call is counted by service, action, region, caller and outcome. All
// methods may be called by several goroutines at a time.
//
// A signature is not verified, only read: an access key must be the root's or one that
// AssumeRole gave out and that has not expired by the Server's clock.
//
// Locking: Server.mu guards rules, sessions and records; it is never held while a
// service answers, a rule hangs or bytes are written.
package aws
