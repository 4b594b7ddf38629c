package awsset

// State of an item.
type State string

// States. Only OK and Skipped are no problem.
const (
	OK      State = "ok"
	Wrong   State = "wrong"
	Missing State = "missing"
	// Refused: the caller may not read it.
	Refused State = "denied"
	// Skipped: it was not checked.
	Skipped State = "skipped"
)

// ItemCaller is the item of the caller's identity.
const ItemCaller = "caller"

// Row is a finding of a check.
type Row struct {
	Account string `json:"account"`
	Region  string `json:"region"`
	Item    string `json:"item"`
	State   State  `json:"state"`
	// Problem is empty if the item is right, but may say more about it. Fix is a command, or what to do.
	Problem string `json:"problem,omitempty"`
	Fix     string `json:"fix,omitempty"`
	// Manifest is an object for the management cluster, if Fix needs one.
	Manifest string `json:"manifest,omitempty"`
}

// Bad reports whether the item must be fixed.
func (r Row) Bad() bool { return r.State != OK && r.State != Skipped }

// row returns a finding about a call that failed.
func (f *Failure) row(t *Target, item string) Row {
	state := Wrong
	switch f.Kind {
	case Denied:
		state = Refused
	case Absent:
		state = Missing
	case NoCredentials, Other:
	}
	return Row{Account: t.Account, Region: t.Region, Item: item, State: state, Problem: f.Error(), Fix: f.Fix()}
}
