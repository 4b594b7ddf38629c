package expression

import (
	"errors"
	"fmt"
	"sync"

	"github.com/Masterminds/semver/v3"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
)

// kind of an expression: which variables it has.
type kind uint8

const (
	ofTargets kind = iota
	ofValue
)

// maxVersion is the length of a text above which it is no semantic version.
const maxVersion = 256

// environment has the declarations of a kind.
type environment struct {
	cel *cel.Env
	// bindings are the implementations of the bounded functions, by overload.
	bindings map[string]*functions.Overload
}

// environments of the kinds. They are made once: that takes milliseconds.
var environments = [...]func() *environment{
	ofTargets: sync.OnceValue(func() *environment {
		targets := cel.ListType(targetType)
		return newEnvironment(
			cel.Variable("targets", targets),
			cel.Variable("sourceTargets", targets),
			cel.Variable("revision", cel.StringType),
			cel.Variable("from", cel.ListType(cel.StringType)),
			cel.Variable("environment", cel.StringType),
			cel.Variable("source", cel.StringType),
		)
	}),
	ofValue: sync.OnceValue(func() *environment { return newEnvironment(cel.Variable("value", cel.DoubleType)) }),
}

func newEnvironment(variables ...cel.EnvOption) *environment {
	env, err := cel.NewCustomEnv(append([]cel.EnvOption{
		cel.StdLib(),
		func(e *cel.Env) (*cel.Env, error) { return cel.CustomTypeProvider(provider{e.CELTypeProvider()})(e) },
		cel.ParserExpressionSizeLimit(maxText),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		ext.Strings(),
		ext.Sets(),
		cel.Function("isSemver", cel.Overload("isSemver_string", []*cel.Type{cel.StringType}, cel.BoolType, cel.UnaryBinding(isSemver))),
		cel.Function("compareSemver", cel.Overload("compareSemver_string_string",
			[]*cel.Type{cel.StringType, cel.StringType}, cel.IntType, cel.BinaryBinding(compareSemver))),
	}, variables...)...)
	if err != nil {
		panic(fmt.Sprintf("expression: making an environment: %v", err)) // The declarations are constant.
	}
	e := &environment{cel: env, bindings: map[string]*functions.Overload{}}
	for _, function := range env.Functions() {
		bindings, err := function.Bindings()
		if err != nil {
			panic(fmt.Sprintf("expression: the binding of %s: %v", function.Name(), err))
		}
		for _, one := range bindings {
			if products[one.Operator] || replacing[one.Operator] {
				e.bindings[one.Operator] = one
			}
		}
	}
	return e
}

func version(text ref.Val) (*semver.Version, error) {
	s, ok := text.(types.String)
	if !ok || len(s) > maxVersion {
		return nil, errors.New("it is too long")
	}
	return semver.NewVersion(string(s))
}

func isSemver(text ref.Val) ref.Val {
	_, err := version(text)
	return types.Bool(err == nil)
}

func compareSemver(a, b ref.Val) ref.Val {
	var versions [2]*semver.Version
	for i, text := range []ref.Val{a, b} {
		v, err := version(text)
		if err != nil {
			return types.NewErr("compareSemver: %q is not a semantic version", text.Value())
		}
		versions[i] = v
	}
	return types.Int(versions[0].Compare(versions[1]))
}
