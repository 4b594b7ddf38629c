package catalogue_test

import (
	"fmt"
	"runtime"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
)

// mostPerType is what an instance type of a region may cost in memory, in bytes: its
// place in a map, and its share of the capacity that all regions have in common.
const mostPerType = 200

// The whole of AWS fits into a few MiB. With regions = 20, which takes a minute with the
// race detector, the 19 take 2.5 MiB, 97 bytes a type.
func TestMemory(t *testing.T) {
	const regions, typesEach = 3, 1400
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	all := ec2.Many(typesEach)
	names := make([]string, regions)
	for i := range names {
		names[i] = fmt.Sprintf("eu-west-%d", i+1)
		w.ec2.Offer(names[i], all...)
	}
	_, err := w.get(t, names[0], "m5.large") // What the SDK sets up once does not count.
	g.Expect(err).NotTo(HaveOccurred())

	before := heap()
	for _, region := range names[1:] {
		_, err := w.get(t, region, "m5.large")
		g.Expect(err).NotTo(HaveOccurred())
	}
	used := heap() - before
	each := used / ((regions - 1) * typesEach)
	t.Logf("%d regions of %d types more: %d KiB, %d bytes a type", regions-1, typesEach, used/1024, each)
	g.Expect(each).To(BeNumerically("<=", mostPerType))
	runtime.KeepAlive(w)
}

// heap returns the heap in use after garbage collection.
func heap() int64 {
	var m runtime.MemStats
	// Twice: interned values go a cycle after what held them.
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
