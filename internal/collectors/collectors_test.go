package collectors

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
)

func counter(name string) prometheus.Collector {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: name})
}

func names(g *WithT, r *prometheus.Registry) []string {
	families, err := r.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	var all []string
	for _, f := range families {
		all = append(all, f.GetName())
	}
	return all
}

func TestRegistersAllOrNone(t *testing.T) {
	g := NewWithT(t)
	r := prometheus.NewRegistry()
	undo, err := Register(r, counter("a"), counter("b"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names(g, r)).To(ConsistOf("a", "b"))

	_, err = Register(r, counter("c"), counter("b"))
	g.Expect(errors.As(err, &prometheus.AlreadyRegisteredError{})).To(BeTrue())
	g.Expect(names(g, r)).To(ConsistOf("a", "b"), "not c")

	undo()
	g.Expect(names(g, r)).To(BeEmpty())
}

func TestNoRegistry(t *testing.T) {
	g := NewWithT(t)
	undo, err := Register(nil, counter("a"))
	g.Expect(err).NotTo(HaveOccurred())
	undo()
}
