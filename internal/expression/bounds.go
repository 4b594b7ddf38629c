package expression

import (
	"fmt"

	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

const (
	// maxText is the length of an expression in bytes.
	maxText = 4096
	// maxCost of one evaluation. A unit is about one comparison.
	maxCost = 100_000
	// maxProduct of the sizes of the arguments of one call that takes a time that is proportional to
	// this product.
	maxProduct = 10 * maxCost
	// stepsPerUnit is how many steps of a regular expression cost a unit.
	stepsPerUnit = 10
)

// products are the overloads whose time is proportional to the product of the sizes of their
// first two arguments.
var products = map[string]bool{
	"list_sets_contains_list": true, "list_sets_intersects_list": true, "list_sets_equivalent_list": true,
	"string_index_of_string": true, "string_index_of_string_int": true,
	"string_last_index_of_string": true, "string_last_index_of_string_int": true,
}

// replacing are the overloads whose result may have the product of the sizes of the first and the
// third argument.
var replacing = map[string]bool{"string_replace_string_string": true, "string_replace_string_string_int": true}

// bound replaces a call whose time is proportional to a product of sizes by one that checks the
// sizes first: cel-go adds the cost of a call when it has returned.
func bound(bindings map[string]*functions.Overload) interpreter.InterpretableDecoratorV2 {
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := i.(interpreter.InterpretableCall)
		if !ok || !products[call.OverloadID()] && !replacing[call.OverloadID()] {
			return i, nil
		}
		binding := bindings[call.OverloadID()]
		if binding == nil {
			return nil, fmt.Errorf("no binding of %s", call.OverloadID())
		}
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
			if product(call.OverloadID(), args) > maxProduct {
				return types.WrapErr(errCost)
			}
			if binding.Binary != nil && len(args) == 2 {
				return binding.Binary(args[0], args[1])
			}
			return binding.Function(args...)
		}), nil
	}
}

// product returns to what the time of a call is proportional.
func product(overload string, args []ref.Val) uint64 {
	most := sizeOf(args[1])
	if replacing[overload] {
		most = max(most, sizeOf(args[2]))
	}
	return sizeOf(args[0]) * most
}

// boundPatterns replaces calls of matches by ones whose regular expression is compiled already.
func (c *costs) boundPatterns() *interpreter.RegexOptimization {
	return &interpreter.RegexOptimization{
		Function: matches, RegexIndex: 1,
		Factory: func(call interpreter.InterpretableCall, text string) (interpreter.InterpretableCall, error) {
			compiled, instructions, err := compilePattern(text)
			if err != nil {
				return nil, err
			}
			c.pattern = max(c.pattern, instructions)
			return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
				in, ok := args[0].(types.String)
				if !ok {
					return types.NoSuchOverloadErr()
				}
				if uint64(len(in))*instructions > maxProduct {
					return types.WrapErr(errCost)
				}
				return types.Bool(compiled.MatchString(string(in)))
			}), nil
		},
	}
}

// costs are the bounds of one program.
type costs struct {
	// pattern is the size of the largest regular expression.
	pattern uint64
}

// CallCost implements interpreter.ActualCostEstimator.
func (c *costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	var cost uint64
	switch {
	case function == matches && len(args) == 2:
		cost = 1 + (1+sizeOf(args[0]))*c.pattern/stepsPerUnit
	case overload == "add_list":
		cost = 1 + sizeOf(result)
	default:
		return nil
	}
	return &cost
}

func sizeOf(v ref.Val) uint64 {
	if sized, ok := v.(traits.Sizer); ok {
		if n, ok := sized.Size().(types.Int); ok {
			return uint64(max(n, 1))
		}
	}
	return 1
}

// minimum is what every evaluation costs at least. Sizes of variables are not known: 0 at least.
type minimum struct{}

// EstimateSize implements checker.CostEstimator.
func (minimum) EstimateSize(checker.AstNode) *checker.SizeEstimate { return nil }

// EstimateCallCost implements checker.CostEstimator.
func (minimum) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
