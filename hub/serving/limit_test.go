package serving

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// C24, like weave's TestLimiter: three calls per 500 ms, and two clients.
func TestLimiter(t *testing.T) {
	g := NewWithT(t)
	now := time.Unix(1000, 0)
	l := NewLimiter(3, 500*time.Millisecond, 10_000)
	for range 3 {
		g.Expect(l.Take("a", now)).To(BeZero())
	}
	for range 5 {
		g.Expect(l.Take("a", now)).To(BeNumerically("~", 500*time.Millisecond/3, time.Millisecond), "a refused call uses no budget")
	}
	g.Expect(l.Take("b", now)).To(BeZero())
	now = now.Add(500 * time.Millisecond)
	for range 3 {
		g.Expect(l.Take("a", now)).To(BeZero())
	}
	g.Expect(l.Take("a", now)).NotTo(BeZero())
}

// The number of clients is limited; the least recent one is removed.
func TestLimiterIsBounded(t *testing.T) {
	g := NewWithT(t)
	now := time.Unix(1000, 0)
	l := NewLimiter(1, time.Hour, 10)
	for i := range 1000 {
		g.Expect(l.Take(fmt.Sprint(i), now)).To(BeZero())
	}
	g.Expect(l.lockedClients.Len()).To(Equal(10))
	g.Expect(l.Take("999", now)).NotTo(BeZero())
}

func TestClient(t *testing.T) {
	g := NewWithT(t)
	for remote, client := range map[string]string{
		"192.0.2.7:1234":            "192.0.2.7",
		"[::ffff:192.0.2.7]:1234":   "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1]:80": "2001:db8:1:2::/64",
		"[2001:db8:1:3::1]:80":      "2001:db8:1:3::/64",
		"[fe80::1%eth0]:80":         "fe80::/64",
		"[::1]:80":                  "::/64",
		"@":                         "@",
	} {
		g.Expect(Client(remote)).To(Equal(client), remote)
	}
}
