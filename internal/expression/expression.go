package expression

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	"k8s.io/utils/lru"
)

// maxKept is how many expressions are kept, and maxKeptText the length of their texts together.
const (
	maxKept     = 4096
	maxKeptText = 1 << 20
)

// Expression is a compiled expression. Several goroutines may use it at once.
type Expression struct {
	kind    kind
	program cel.Program
	info    *ast.SourceInfo
}

// ForTargets compiles an expression over the variables of Targets. Its value is a bool.
func ForTargets(text string) (*Expression, error) { return kept.get(key{ofTargets, text}) }

// ForValue compiles an expression over the variable value, a double. Its value is a bool.
func ForValue(text string) (*Expression, error) { return kept.get(key{ofValue, text}) }

// EvalTargets evaluates an expression of ForTargets.
func (e *Expression) EvalTargets(in Targets) (bool, error) {
	if e.kind != ofTargets {
		return false, errors.New("an expression over value has no targets")
	}
	return e.eval(&activation{in: &in})
}

// EvalValue evaluates an expression of ForValue.
func (e *Expression) EvalValue(value float64) (bool, error) {
	if e.kind != ofValue {
		return false, errors.New("an expression over targets has no value")
	}
	return e.eval(number(value))
}

func (e *Expression) eval(in interpreter.Activation) (bool, error) {
	out, _, err := e.program.Eval(in)
	if err != nil {
		return false, e.evaluation(err)
	}
	result, ok := out.(types.Bool)
	if !ok {
		return false, errors.New("its value is not true or false") // The type check prevents it.
	}
	return bool(result), nil
}

type key struct {
	kind kind
	text string
}

// examples are valid expressions.
var examples = [...]string{ofTargets: "targets.all(t, t.ready)", ofValue: "value < 0.01"}

// outcome of compiling a text.
type outcome struct {
	expression *Expression
	err        error
}

// cache keeps the outcomes of the texts that were used last.
type cache struct {
	// mu guards lockedOutcomes, and lockedSize, the length of their texts.
	mu             sync.Mutex
	lockedOutcomes *lru.Cache
	lockedSize     int
}

var kept = newCache()

func newCache() *cache {
	c := &cache{}
	c.lockedOutcomes = lru.NewWithEvictionFunc(maxKept, func(k lru.Key, _ any) {
		// The cache calls it in keep, under mu.
		if evicted, ok := k.(key); ok {
			c.lockedSize -= len(evicted.text)
		}
	})
	return c
}

// get compiles a text that is not kept. Two callers may compile the same text at once.
func (c *cache) get(k key) (*Expression, error) {
	if len(k.text) > maxText {
		return nil, fmt.Errorf("it has %d bytes, at most %d are allowed: shorten it", len(k.text), maxText)
	}
	if strings.TrimSpace(k.text) == "" {
		return nil, errors.New("it is empty: write a condition, such as " + examples[k.kind])
	}
	if found, ok := c.find(k); ok {
		return found.expression, found.err
	}
	var made outcome
	made.expression, made.err = compile(k.kind, k.text)
	c.keep(k, made)
	return made.expression, made.err
}

func (c *cache) find(k key) (outcome, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.lockedOutcomes.Get(k)
	if !ok {
		return outcome{}, false
	}
	o, ok := found.(outcome)
	return o, ok
}

func (c *cache) keep(k key, made outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.lockedOutcomes.Get(k); ok {
		return
	}
	c.lockedSize += len(k.text)
	c.lockedOutcomes.Add(k, made)
	for c.lockedSize > maxKeptText {
		c.lockedOutcomes.RemoveOldest()
	}
}

// compile parses, checks and plans a text.
func compile(of kind, text string) (*Expression, error) {
	env := environments[of]()
	parsed, issues := env.cel.Parse(text)
	if issues.Err() != nil {
		return nil, compilation(issues)
	}
	info := parsed.NativeRep().SourceInfo()
	if found := restrictParsed(parsed.NativeRep()); found != nil {
		return nil, at(found.text, info.GetStartLocation(found.node))
	}
	checked, issues := env.cel.Check(parsed)
	if issues.Err() != nil && of == ofValue {
		toDoubles(parsed)
		if again, other := env.cel.Check(parsed); other.Err() == nil {
			checked, issues = again, other
		}
	}
	if issues.Err() != nil {
		return nil, compilation(issues)
	}
	if found := restrictChecked(checked.NativeRep()); found != nil {
		return nil, at(found.text, info.GetStartLocation(found.node))
	}
	if out := checked.OutputType(); !out.IsExactType(types.BoolType) {
		return nil, oneLine(fmt.Sprintf("its value is a %s: it must be true or false, so compare it", out))
	}
	if least, err := env.cel.EstimateCost(checked, minimum{}); err == nil && least.Min > maxCost {
		return nil, errCost
	}
	limits := &costs{}
	program, err := env.cel.Program(checked,
		cel.CustomDecoratorV2(bound(env.bindings)),
		cel.OptimizeRegex(limits.boundPatterns()),
		cel.CostTracking(limits),
		cel.CostLimit(maxCost),
	)
	if err != nil {
		return nil, oneLine(err.Error())
	}
	return &Expression{kind: of, program: program, info: info}, nil
}
