// Package awsconfig has the AWS configuration of the process, and creates credentials and
// clients from it.
//
// Purpose: all callers of AWS share the same settings (credentials, endpoints, time limits,
// retries, user agent), one pool of connections, and one set of credentials for each role.
//
// # Contract
//
// Load reads the environment and the files that AWS' own tools read. It sends no request.
// With AuthIRSA it uses only a web identity; CheckIRSA reports beforehand whether one is
// configured. AWS_ENDPOINT_URL and AWS_ENDPOINT_URL_<SERVICE> apply to every call, also to
// those for credentials.
//
// In returns a configuration for a region with the credentials of a role. It does no I/O and
// is cheap. Clients keeps the clients that are created from it, one for each region and role.
// Both are bounded: the least recently used entry is removed, and created again when needed.
// The package runs no goroutine. Several goroutines may call all methods.
//
// The waits for a connection, for the first byte of an answer and for the whole answer are
// bounded. A call is retried a few times if a retry may help. The SDK slows down while AWS
// throttles it. Callers bound the total time by their context.
//
// # Locking
//
// Config.mu and Clients.mu are held for work in memory, never during I/O. The SDK's cache
// fetches credentials once for all callers that wait.
//
// # Trade-offs
//
// Roles are assumed at STS of the process' own region: a session is valid in all regions of a
// partition, so one session per region has no advantage. If the process has no region, the
// default region of its role's partition is used.
//
// A role that is assumed through another one (Role.Through) has sessions of an hour at most, which is the limit of STS and
// the SDK's default is shorter.
//
// The SDK resolves AWS_ENDPOINT_URL after it has created its STS client for web identities,
// which therefore ignores it. This package replaces that client.
package awsconfig
