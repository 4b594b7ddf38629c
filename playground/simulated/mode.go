package simulated

// Mode is how a server treats its clients.
type Mode int

// Modes of a server.
const (
	// Serve answers as it should.
	Serve Mode = iota
	// Refuse closes the listener and all connections: "connection refused".
	Refuse
	// Tarpit completes TLS and takes requests, and never answers one. Open watches
	// say nothing more.
	Tarpit
	// HalfOpen accepts connections and swallows every byte, on those that are open
	// too; they break when the mode ends.
	HalfOpen
	// Slow answers each request after the delay of SetDelay.
	Slow
	// Unauthorized answers 401 to everything.
	Unauthorized
	// Forbidden answers 403 to every read of a kind. Open watches go on, as a real
	// server's do.
	Forbidden
	// Gone answers 410 to every watch that resumes.
	Gone
	// TooMany answers 429 to every read of a kind, with Retry-After.
	TooMany
	// Broken answers 500 to everything.
	Broken
	// Garbage answers 200 with what is no JSON to everything but /readyz.
	Garbage
	// Huge answers to a list, or a streamed initial list, with hundreds of MiB.
	Huge
	// Endless streams no initial list, and answers to a list with a page of which there
	// is always another.
	Endless
	// NoCRD serves none of the kinds.
	NoCRD
)

// silent is whether not even bytes pass.
func (m Mode) silent() bool { return m == HalfOpen }
