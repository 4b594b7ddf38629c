package approval

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// C24, as weave's TestLimiter: three per 500 ms and two clients.
func TestLimiter(t *testing.T) {
	g := NewWithT(t)
	now := time.Unix(1000, 0)
	l := newLimiter(3, 500*time.Millisecond, maxClients)
	for range 3 {
		g.Expect(l.take("a", now)).To(BeZero())
	}
	for range 5 {
		g.Expect(l.take("a", now)).To(BeNumerically("~", 500*time.Millisecond/3, time.Millisecond), "a refused call costs nothing")
	}
	g.Expect(l.take("b", now)).To(BeZero())
	now = now.Add(500 * time.Millisecond)
	for range 3 {
		g.Expect(l.take("a", now)).To(BeZero())
	}
	g.Expect(l.take("a", now)).NotTo(BeZero())
}

// The least recent client is forgotten; the number of clients is bounded.
func TestLimiterIsBounded(t *testing.T) {
	g := NewWithT(t)
	now := time.Unix(1000, 0)
	l := newLimiter(1, time.Hour, 10)
	for i := range 1000 {
		g.Expect(l.take(fmt.Sprint(i), now)).To(BeZero())
	}
	g.Expect(l.lockedClients.Len()).To(Equal(10))
	g.Expect(l.take("999", now)).NotTo(BeZero())
}

func TestClientOf(t *testing.T) {
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
		g.Expect(clientOf(remote)).To(Equal(client), remote)
	}
}
