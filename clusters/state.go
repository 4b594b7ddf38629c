package clusters

//go:generate go test . -run TestTableDocument -update

import (
	"fmt"
	"regexp"
	"strings"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// event is an input of the state machine. State and event determine the next state.
type event int

const (
	// eventDemanded: an owner demands the cluster.
	eventDemanded event = iota
	// eventReleased: no owner demands it, and the linger is over.
	eventReleased
	// eventRemoved: the cluster object does not exist or is being deleted.
	eventRemoved
	// eventHubUnreadable: the object or the Secret cannot be read in the management cluster.
	eventHubUnreadable
	// eventSecretMissing: the object names no Secret, or the Secret does not exist or
	// contains no kubeconfig.
	eventSecretMissing
	// eventSecretForbidden: the hub may not read the Secret.
	eventSecretForbidden
	// eventRefused: the kubeconfig contains a field that is not in the allow-list, or a
	// wrong value.
	eventRefused
	// eventAccepted: a kubeconfig was accepted that is new, or was missing before.
	eventAccepted
	// eventReplaced: the kubeconfig names another server or CA, and no earlier observation
	// applies to it. It is another cluster, or the previous server did not work any more.
	eventReplaced
	// eventAnswered: a good probe. More are needed after an outage.
	eventAnswered
	// eventHealthy: enough good probes, and every watched kind is synced.
	eventHealthy
	// eventKinds: enough good probes, and a watched kind cannot be synced.
	eventKinds
	// eventNewServer: enough good probes, but the kubeconfig now names another server or
	// CA, which cannot be used yet.
	eventNewServer
	// eventProbeForbidden: the response to a probe is 403.
	eventProbeForbidden
	// eventMissed: one failed probe.
	eventMissed
	// eventFailing: a second failed probe, or a later one while bytes are still received.
	eventFailing
	// eventLost: lossThreshold failed probes and silence.
	eventLost
	// eventRejected: 401, also with the present Secret, of credentials that worked before.
	// They are probed again soon; requests wait.
	eventRejected
	// eventUnauthorized: 401, also with the present Secret, at the last of those probes.
	eventUnauthorized

	eventCount
)

// String returns the name of the event in the table.
func (e event) String() string {
	switch e {
	case eventDemanded:
		return "demanded"
	case eventReleased:
		return "released, linger over"
	case eventRemoved:
		return "cluster object removed"
	case eventHubUnreadable:
		return "hub objects unreadable"
	case eventSecretMissing:
		return "Secret missing"
	case eventSecretForbidden:
		return "Secret forbidden"
	case eventRefused:
		return "kubeconfig refused"
	case eventAccepted:
		return "kubeconfig accepted"
	case eventReplaced:
		return "other server or CA"
	case eventAnswered:
		return "good probe, too few yet"
	case eventHealthy:
		return "good probes, kinds synced"
	case eventKinds:
		return "good probes, kind not synced"
	case eventNewServer:
		return "good probes, new server unusable"
	case eventProbeForbidden:
		return "probe forbidden"
	case eventMissed:
		return "one failed probe"
	case eventFailing:
		return "two failed probes"
	case eventLost:
		return "three failed probes, silence"
	case eventRejected:
		return "unauthorized, worked before"
	case eventUnauthorized:
		return "unauthorized"
	case eventCount:
	}
	return "unknown"
}

// Reasons of states.
const (
	ReasonNotDemanded       = "NotDemanded"
	ReasonWaiting           = "ReadingCredentials"
	ReasonHubUnreadable     = "HubUnreadable"
	ReasonDialling          = "Dialling"
	ReasonEndpointChanged   = "EndpointChanged"
	ReasonConnected         = "Connected"
	ReasonKindNotSynced     = "KindNotSynced"
	ReasonNewServerFailing  = "NewServerFailing"
	ReasonProbeForbidden    = "ProbeForbidden"
	ReasonProbeFailing      = "ProbeFailing"
	ReasonProbesFailed      = "ProbesFailed"
	ReasonSecretMissing     = "SecretMissing"
	ReasonSecretForbidden   = "SecretForbidden"
	ReasonKubeconfigRefused = "KubeconfigRefused"
	ReasonUnauthorized      = "Unauthorized"
	ReasonClusterGone       = "ClusterGone"
)

// outcome is a state with its reason.
type outcome struct {
	State  capstanv1.ConnectionState
	Reason string
}

// states in the order of the table.
var states = []capstanv1.ConnectionState{
	capstanv1.ConnectionUnused,
	capstanv1.ConnectionConnecting,
	capstanv1.ConnectionReady,
	capstanv1.ConnectionDegraded,
	capstanv1.ConnectionUnreachable,
	capstanv1.ConnectionAuthFailed,
	capstanv1.ConnectionRemoved,
}

// Outcomes of the table.
var (
	unused          = outcome{capstanv1.ConnectionUnused, ReasonNotDemanded}
	waiting         = outcome{capstanv1.ConnectionConnecting, ReasonWaiting}
	hubUnreadable   = outcome{capstanv1.ConnectionConnecting, ReasonHubUnreadable}
	dialling        = outcome{capstanv1.ConnectionConnecting, ReasonDialling}
	replaced        = outcome{capstanv1.ConnectionConnecting, ReasonEndpointChanged}
	connected       = outcome{capstanv1.ConnectionReady, ReasonConnected}
	kindNotSynced   = outcome{capstanv1.ConnectionDegraded, ReasonKindNotSynced}
	newServer       = outcome{capstanv1.ConnectionDegraded, ReasonNewServerFailing}
	probeForbidden  = outcome{capstanv1.ConnectionDegraded, ReasonProbeForbidden}
	probeFailing    = outcome{capstanv1.ConnectionDegraded, ReasonProbeFailing}
	probesFailed    = outcome{capstanv1.ConnectionUnreachable, ReasonProbesFailed}
	secretMissing   = outcome{capstanv1.ConnectionAuthFailed, ReasonSecretMissing}
	secretForbidden = outcome{capstanv1.ConnectionAuthFailed, ReasonSecretForbidden}
	refused         = outcome{capstanv1.ConnectionAuthFailed, ReasonKubeconfigRefused}
	unauthorized    = outcome{capstanv1.ConnectionAuthFailed, ReasonUnauthorized}
	removed         = outcome{capstanv1.ConnectionRemoved, ReasonClusterGone}
)

// stay is the outcome for pairs of state and event that change neither state nor reason.
var stay = outcome{}

// tableText is the whole state machine. A row gives, for each event, the outcome in each
// state; "-" changes nothing. Columns are separated by two spaces or more.
//
// Some decisions need a reason. One failed probe changes nothing, because a lost packet
// must have no effect. A short time of 401 changes nothing either, because the webhook that
// checks tokens may be unavailable for a moment. While the management cluster does not
// respond, a working connection does not change. A cluster that never responded is also
// Unreachable after the probes have failed.
const tableText = `
                                  Unused   Connecting       Ready           Degraded        Unreachable     AuthFailed       Removed
demanded                          waiting  -                -               -               -               -                waiting
released, linger over             -        unused           unused          unused          unused          unused           unused
cluster object removed            removed  removed          removed         removed         removed         removed          -
hub objects unreadable            -        hubUnreadable    -               -               -               -                hubUnreadable
Secret missing                    -        secretMissing    secretMissing   secretMissing   secretMissing   secretMissing    secretMissing
Secret forbidden                  -        secretForbidden  -               -               -               secretForbidden  secretForbidden
kubeconfig refused                -        refused          refused         refused         refused         refused          refused
kubeconfig accepted               -        dialling         -               -               -               dialling         dialling
other server or CA                -        replaced         replaced        replaced        replaced        replaced         replaced
good probe, too few yet           -        -                -               -               -               -                -
good probes, kinds synced         -        connected        connected       connected       connected       connected        -
good probes, kind not synced      -        kindNotSynced    kindNotSynced   kindNotSynced   kindNotSynced   kindNotSynced    -
good probes, new server unusable  -        -                newServer       newServer       -               -                -
probe forbidden                   -        probeForbidden   probeForbidden  probeForbidden  probeForbidden  probeForbidden   -
one failed probe                  -        -                -               -               -               -                -
two failed probes                 -        -                probeFailing    probeFailing    -               -                -
three failed probes, silence      -        probesFailed     probesFailed    probesFailed    probesFailed    probesFailed     -
unauthorized, worked before       -        -                -               -               -               -                -
unauthorized                      -        unauthorized     unauthorized    unauthorized    unauthorized    unauthorized     -
`

// outcomes are the outcomes by their names in the table.
var outcomes = map[string]outcome{
	"-":               stay,
	"unused":          unused,
	"waiting":         waiting,
	"hubUnreadable":   hubUnreadable,
	"dialling":        dialling,
	"replaced":        replaced,
	"connected":       connected,
	"kindNotSynced":   kindNotSynced,
	"newServer":       newServer,
	"probeForbidden":  probeForbidden,
	"probeFailing":    probeFailing,
	"probesFailed":    probesFailed,
	"secretMissing":   secretMissing,
	"secretForbidden": secretForbidden,
	"refused":         refused,
	"unauthorized":    unauthorized,
	"removed":         removed,
}

var table = readTable(tableText)

// readTable reads the table. It panics when the text is not a table of all events and all
// states, in their order.
func readTable(text string) (read [eventCount][7]outcome) {
	columns := regexp.MustCompile(` {2,}`)
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, name := range columns.Split(strings.TrimSpace(lines[0]), -1) {
		if string(states[i]) != name {
			panic(fmt.Sprintf("column %d of the table is %q, not %q", i, name, states[i]))
		}
	}
	if len(lines) != int(eventCount)+1 {
		panic("the table does not have one row for each event")
	}
	for e, line := range lines[1:] {
		cells := columns.Split(line, -1)
		if cells[0] != event(e).String() || len(cells) != len(states)+1 {
			panic(fmt.Sprintf("row %d of the table is not that of %q: %q", e, event(e), line))
		}
		for i, cell := range cells[1:] {
			to, known := outcomes[cell]
			if !known {
				panic(fmt.Sprintf("the table names the outcome %q, which is unknown", cell))
			}
			read[e][i] = to
		}
	}
	return read
}

// next returns the outcome after an event. It is a pure function. When nothing changes, it
// returns from.
func next(from outcome, e event) outcome {
	for i, s := range states {
		if s == from.State {
			if to := table[e][i]; to != stay {
				return to
			}
			return from
		}
	}
	return from
}

// passes reports whether requests are sent in a state. In all other states they wait.
func passes(s capstanv1.ConnectionState) bool {
	switch s {
	case capstanv1.ConnectionReady, capstanv1.ConnectionDegraded:
		return true
	case capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting, capstanv1.ConnectionUnreachable,
		capstanv1.ConnectionAuthFailed, capstanv1.ConnectionRemoved:
	}
	return false
}

// isProblem reports whether a state is one that a person may have to act on.
func isProblem(s capstanv1.ConnectionState) bool {
	switch s {
	case capstanv1.ConnectionDegraded, capstanv1.ConnectionUnreachable, capstanv1.ConnectionAuthFailed:
		return true
	case capstanv1.ConnectionUnused, capstanv1.ConnectionConnecting, capstanv1.ConnectionReady, capstanv1.ConnectionRemoved:
	}
	return false
}

// Row is a line of the table, for documents.
type Row struct {
	Event string
	// To has an outcome ("State/Reason") for each of States(); "" when nothing
	// changes.
	To []string
}

// States returns the columns of Table.
func States() []capstanv1.ConnectionState { return append([]capstanv1.ConnectionState(nil), states...) }

// Table returns the state machine of a connection.
func Table() []Row {
	rows := make([]Row, 0, eventCount)
	for e := range eventCount {
		row := Row{Event: e.String()}
		for _, to := range table[e] {
			cell := ""
			if to != stay {
				cell = string(to.State) + "/" + to.Reason
			}
			row.To = append(row.To, cell)
		}
		rows = append(rows, row)
	}
	return rows
}
