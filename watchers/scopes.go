package watchers

// scopes says whether a kind is watched in the whole cluster or by namespace.
type scopes int

const (
	scopesUnknown scopes = iota
	// scopeAll: one informer for the cluster.
	scopeAll
	// scopeNamespaces: one for each namespace in which an object is demanded.
	scopeNamespaces
)
