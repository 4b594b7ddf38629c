package expression

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// Target is one target of an environment, as expressions see it.
type Target struct {
	Cluster     string
	Namespace   string
	Revision    string
	Ready       bool
	Progressing bool
	Message     string
}

// Targets are the variables of an expression that ForTargets compiles.
type Targets struct {
	// Targets of the environment, and SourceTargets of the one before it.
	Targets, SourceTargets []Target
	// Revision is the one to be promoted. From are the revisions that run.
	Revision string
	From     []string
	// Environment and Source are names.
	Environment, Source string
}

// typeName is the name of the type of a target in expressions and messages.
const typeName = "Target"

// targetType is the type of a target.
var targetType = types.NewObjectType(typeName)

// field is a field of a Target.
type field struct {
	of  *types.Type
	get func(*Target) ref.Val
}

func textField(get func(*Target) string) field {
	return field{types.StringType, func(t *Target) ref.Val { return types.String(get(t)) }}
}

func boolField(get func(*Target) bool) field {
	return field{types.BoolType, func(t *Target) ref.Val { return types.Bool(get(t)) }}
}

// fields of a Target, by their names in expressions.
var fields = map[string]field{
	"cluster":     textField(func(t *Target) string { return t.Cluster }),
	"namespace":   textField(func(t *Target) string { return t.Namespace }),
	"revision":    textField(func(t *Target) string { return t.Revision }),
	"ready":       boolField(func(t *Target) bool { return t.Ready }),
	"progressing": boolField(func(t *Target) bool { return t.Progressing }),
	"message":     textField(func(t *Target) string { return t.Message }),
}

// fieldNames are the names of the fields in alphabetical order.
var fieldNames = func() []string {
	var names []string
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}()

// provider is cel-go's own with the type of a target. Its fields are read without reflection.
type provider struct{ types.Provider }

// FindIdent implements types.Provider.
func (p provider) FindIdent(name string) (ref.Val, bool) {
	if name == typeName {
		return targetType, true
	}
	return p.Provider.FindIdent(name)
}

// FindStructType implements types.Provider.
func (p provider) FindStructType(name string) (*types.Type, bool) {
	if name == typeName {
		return types.NewTypeTypeWithParam(targetType), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p provider) FindStructFieldNames(name string) ([]string, bool) {
	if name == typeName {
		return slices.Clone(fieldNames), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (p provider) FindStructFieldType(of, name string) (*types.FieldType, bool) {
	if of != typeName {
		return p.Provider.FindStructFieldType(of, name)
	}
	found, ok := fields[name]
	if !ok {
		return nil, false
	}
	return &types.FieldType{
		Type: found.of,
		// A text is set if it is not empty, a bool if it is true, as in protocol buffers.
		IsSet: func(of any) bool {
			t, ok := of.(*Target)
			return ok && found.get(t) != types.String("") && found.get(t) != types.False
		},
		GetFrom: func(of any) (any, error) {
			t, ok := of.(*Target)
			if !ok {
				return nil, fmt.Errorf("no such field: %s", name)
			}
			return found.get(t), nil
		},
	}, true
}

// value is a Target as a value of CEL.
type value struct{ target *Target }

// ConvertToNative implements ref.Val.
func (v *value) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("a target is not a %s", to)
}

// ConvertToType implements ref.Val.
func (v *value) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case targetType:
		return v
	case types.TypeType:
		return targetType
	}
	return types.NewErr("a target is not a %s", to.TypeName())
}

// Equal implements ref.Val.
func (v *value) Equal(other ref.Val) ref.Val {
	o, ok := other.(*value)
	return types.Bool(ok && *o.target == *v.target)
}

// Type implements ref.Val.
func (v *value) Type() ref.Type { return targetType }

// Value implements ref.Val. Fields are read from what it returns.
func (v *value) Value() any { return v.target }

func list(targets []Target) ref.Val {
	values := make([]value, len(targets))
	refs := make([]ref.Val, len(targets))
	for i := range targets {
		values[i].target = &targets[i]
		refs[i] = &values[i]
	}
	return types.NewRefValList(types.DefaultTypeAdapter, refs)
}

// activation resolves the variables of Targets. Lists are converted when they are read first.
type activation struct {
	in                     *Targets
	targets, sources, from ref.Val
}

// ResolveName implements interpreter.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case "targets":
		if a.targets == nil {
			a.targets = list(a.in.Targets)
		}
		return a.targets, true
	case "sourceTargets":
		if a.sources == nil {
			a.sources = list(a.in.SourceTargets)
		}
		return a.sources, true
	case "from":
		if a.from == nil {
			a.from = types.NewStringList(types.DefaultTypeAdapter, a.in.From)
		}
		return a.from, true
	case "revision":
		return types.String(a.in.Revision), true
	case "environment":
		return types.String(a.in.Environment), true
	case "source":
		return types.String(a.in.Source), true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (*activation) Parent() interpreter.Activation { return nil }

// number resolves the variable value.
type number float64

// ResolveName implements interpreter.Activation.
func (n number) ResolveName(name string) (any, bool) {
	if name == "value" {
		return types.Double(n), true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (number) Parent() interpreter.Activation { return nil }
