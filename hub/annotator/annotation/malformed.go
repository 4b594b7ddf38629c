package annotation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/capstan-hub/capstan/internal/truncate"
)

// leastMemory in bytes is less than any machine with a kubelet has. A smaller quantity is a
// mistake: "500m" is half a byte.
const leastMemory = 64 << 20

// Malformed is a value that an autoscaler cannot read, or does not read as the user means it.
type Malformed struct {
	Key string
	// Value is shortened to fit a message.
	Value string
	// Problem completes "the value ...".
	Problem string
}

// String returns the text for users.
func (m Malformed) String() string { return fmt.Sprintf("%s=%q %s", m.Key, m.Value, m.Problem) }

// maxValue is the maximum length of Malformed.Value in bytes.
const maxValue = 64

// readers check values as the autoscalers parse them, by key. They return the problem, or "".
var readers = map[string]func(string) string{
	CPU:            quantity(1),
	Memory:         quantity(leastMemory),
	EphemeralDisk:  quantity(0),
	GPUCount:       integer,
	MaxPods:        integer,
	LegacyVCPU:     quantity(1),
	LegacyMemoryMb: integer,
	LegacyGPU:      integer,
}

func quantity(least int64) func(string) string {
	return func(s string) string {
		q, err := resource.ParseQuantity(s)
		switch {
		case err != nil:
			return "is not a quantity such as 4 or 8192Mi"
		case q.Sign() < 0:
			return "is below zero"
		case least == leastMemory && q.Value() < least:
			return "is less than 64Mi: memory is in bytes, such as 8192Mi"
		case q.Sign() == 0 && least > 0:
			return "is zero"
		}
		return ""
	}
}

func integer(s string) string {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil:
		return "is not a whole number"
	case n < 0:
		return "is below zero"
	}
	return ""
}

// malformed returns the values that differ from the record and cannot be parsed.
func malformed(values, recorded map[string]string, odd []string) []Malformed {
	var all []Malformed
	add := func(key, value, problem string) {
		all = append(all, Malformed{Key: key, Value: truncate.Bytes(value, maxValue), Problem: problem})
	}
	for key, read := range readers {
		value, present := values[key]
		if was, ours := recorded[key]; !present || ours && was == value {
			continue
		}
		if problem := read(value); problem != "" {
			add(key, value, problem)
		}
	}
	if n, err := strconv.ParseInt(values[GPUCount], 10, 64); err == nil && n > 0 && values[GPUType] == "" {
		add(GPUCount, values[GPUCount], "has no effect without "+GPUType)
	}
	for _, token := range odd {
		add(Labels, token, "is not a label (key=value)")
	}
	slices.SortFunc(all, func(a, b Malformed) int { return strings.Compare(a.String(), b.String()) })
	return all
}
