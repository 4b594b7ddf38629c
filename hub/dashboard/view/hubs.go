package view

// Hub is another hub of the management cluster, which serves other namespaces.
type Hub struct {
	Name string
	// Dashboard is the URL of its dashboard; empty if it is not known.
	Dashboard string
}
