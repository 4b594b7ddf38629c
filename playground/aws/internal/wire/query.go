package wire

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/capstan-hub/capstan/playground/aws"
)

// Action of a service S with the query protocol.
type Action[S any] struct {
	do         func(s S, c *aws.Call) (any, *aws.Fault)
	parameters []string
}

// Do returns an action that do answers, whose result may be nil. It has the parameters; one that ends
// with a dot is the prefix of a list.
func Do[S any](do func(s S, c *aws.Call) (any, *aws.Fault), parameters ...string) Action[S] {
	return Action[S]{do, parameters}
}

// Query answers a call by the action of its name, which runs with the lock. It refuses actions and parameters that are not
// simulated, because a caller would not notice that they have no effect.
func Query[S any](w http.ResponseWriter, namespace string, actions map[string]Action[S], s S, lock sync.Locker, c *aws.Call) *aws.Fault {
	action, known := actions[c.Action]
	if !known {
		return Bad("InvalidAction", "Could not find operation %s: it is not simulated", c.Action)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Form)) {
		if name != "Action" && name != "Version" && !slices.ContainsFunc(action.parameters, func(p string) bool {
			return p == name || strings.HasSuffix(p, ".") && strings.HasPrefix(name, p)
		}) {
			return Bad("ValidationError", "The parameter %s of %s is not simulated", name, c.Action)
		}
	}
	result, fault := func() (any, *aws.Fault) {
		lock.Lock()
		defer lock.Unlock()
		return action.do(s, c)
	}()
	if fault != nil {
		return fault
	}
	WriteXML(w, namespace, c.Action, result)
	return nil
}

// Bad returns a fault of the caller.
func Bad(code, format string, args ...any) *aws.Fault {
	return &aws.Fault{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}
