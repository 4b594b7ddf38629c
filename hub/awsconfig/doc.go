// Package awsconfig is how the hub calls AWS: one configuration for the process, and
// the credentials and clients that are made of it.
//
// Purpose: what every caller of AWS needs to have alike (credentials, endpoints, time
// limits, retries, the name it goes by) is settled here, once, and shared by all of
// them: one pool of connections, one set of credentials for each role.
//
// # Contract
//
// Load reads the environment and the files that AWS' own tools read; it makes no call.
// With AuthIRSA it insists on a web identity and uses nothing else; CheckIRSA says
// beforehand whether there is one. AWS_ENDPOINT_URL and AWS_ENDPOINT_URL_<SERVICE>
// hold for every call, those for credentials among them.
//
// In returns a configuration for a region with the credentials of a role: no I/O, and
// cheap. Clients keeps the clients that are made of it, one for each region and role.
// Both are bounded: what was used longest ago goes, and is made anew when needed.
// Nothing here runs a goroutine. All methods may be called by several goroutines.
//
// A call waits for a connection, an answer's first byte and all of it for a bounded
// time each, and is tried a few times where that may help; the SDK slows down by
// itself while it is throttled. Callers bound the whole by their context.
//
// # Locking
//
// Config.mu and Clients.mu are held while something is made from memory, never over
// I/O. Credentials are fetched by the SDK's cache, once for all who wait.
//
// # Trade-offs
//
// Roles are assumed at STS of the process' own region: sessions hold everywhere in a
// partition, and one more session for each region would buy nothing. A region where
// the process has none is that of the partition its own role is in.
//
// The SDK resolves the endpoint of AWS_ENDPOINT_URL after it has made its STS client
// for web identities, which therefore ignores it; that client is replaced here.
package awsconfig
