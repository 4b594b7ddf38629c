package watchers

// scopes is how a kind is watched.
type scopes int

const (
	scopesUnknown scopes = iota
	// scopeAll: one informer for the cluster.
	scopeAll
	// scopeNamespaces: one for each namespace in which an object is demanded.
	scopeNamespaces
)
