package netguard_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/internal/netguard/netguardtest"
)

// check judges an address in the four ways of the package, which must agree.
func check(t *testing.T, p netguard.Policy, a netguardtest.Address) error {
	t.Helper()
	g := NewWithT(t)
	err := p.Check(netip.MustParseAddr(a.IP))
	for way, again := range map[string]error{
		"Control": p.Control("tcp", a.HostPort("443"), nil), "CheckHost": p.CheckHost(a.IP), "CheckProxied": p.CheckProxied(a.IP),
	} {
		g.Expect(again == nil).To(Equal(err == nil), "%s of %s: %v", way, a.IP, again)
	}
	return err
}

func TestPolicy(t *testing.T) {
	for _, allow := range []bool{false, true} {
		p := netguard.Policy{AllowLoopback: allow}
		for _, a := range netguardtest.Forbidden {
			t.Run(a.Name, func(t *testing.T) {
				g := NewWithT(t)
				err := check(t, p, a)
				g.Expect(err).To(MatchError(netguard.ErrForbidden))
				g.Expect(err).To(MatchError(And(ContainSubstring(a.IP), ContainSubstring(a.Reason), ContainSubstring("use another address"))))
			})
		}
		for _, a := range netguardtest.Loopback {
			t.Run(a.Name, func(t *testing.T) {
				err := check(t, p, a)
				if allow {
					NewWithT(t).Expect(err).NotTo(HaveOccurred())
					return
				}
				NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring(a.IP), ContainSubstring(a.Reason))))
			})
		}
		for _, a := range netguardtest.Allowed {
			t.Run(a.Name, func(t *testing.T) { NewWithT(t).Expect(check(t, p, a)).To(Succeed()) })
		}
	}
}

func TestZonesAndInvalidAddresses(t *testing.T) {
	g, p := NewWithT(t), netguard.Policy{AllowLoopback: true}
	g.Expect(p.Check(netip.MustParseAddr("fe80::1%eth0"))).To(MatchError(ContainSubstring("link-local")))
	g.Expect(p.Check(netip.Addr{})).To(MatchError(netguard.ErrForbidden))
	for _, host := range []string{"fe80::1%canary", "127.0.0.1%canary", "::1%canary", "canary.localhost"} {
		if err := (netguard.Policy{}).CheckHost(host); err != nil {
			g.Expect(err.Error()).NotTo(ContainSubstring("canary"), "a refusal quotes no text of the caller's")
		}
	}
	for _, address := range []string{"", "nonsense", "example.com:443", "127.0.0.1", "[::1]"} {
		g.Expect(p.Control("tcp", address, nil)).To(MatchError(netguard.ErrForbidden), address)
	}
}

func TestHosts(t *testing.T) {
	for host, want := range map[string]struct{ strict, loopback bool }{
		"metadata":                  {false, false},
		"Metadata.Google.Internal.": {false, false},
		"instance-data":             {false, false},
		"localhost":                 {false, true},
		"LOCALHOST.":                {false, true},
		"web.localhost":             {false, true},
		"127.0.0.1":                 {false, true},
		"fe80::1%eth0":              {false, false},
		"localhost.example.com":     {true, true},
		"example.com":               {true, true},
		"":                          {true, true},
	} {
		g := NewWithT(t)
		g.Expect(netguard.Policy{}.CheckHost(host) == nil).To(Equal(want.strict), host)
		g.Expect(netguard.Policy{AllowLoopback: true}.CheckHost(host) == nil).To(Equal(want.loopback), host)
	}
}

// TestDial proves that a dialer with Control makes no connection to a forbidden
// address, and that the refusal can be found in its error.
func TestDial(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	dial := func(ctx context.Context, p netguard.Policy, address string) error {
		conn, err := (&net.Dialer{Control: p.Control}).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	g := NewWithT(t)
	for _, host := range []string{"127.0.0.1", "localhost"} {
		g.Expect(dial(t.Context(), netguard.Policy{AllowLoopback: true}, net.JoinHostPort(host, port))).To(Succeed(), host)
		err := dial(t.Context(), netguard.Policy{}, net.JoinHostPort(host, port))
		var refusal *netguard.Error
		g.Expect(errors.As(err, &refusal)).To(BeTrue(), "%s: %v", host, err)
		g.Expect(refusal.Reason).To(ContainSubstring("loopback"))
	}
	for _, a := range netguardtest.Forbidden {
		g.Expect(dial(t.Context(), netguard.Policy{AllowLoopback: true}, a.HostPort(port))).To(MatchError(netguard.ErrForbidden), a.IP)
	}
}

// FuzzPolicy: no form of an address changes the judgement, and nothing panics.
func FuzzPolicy(f *testing.F) {
	for _, a := range append(netguardtest.Forbidden, netguardtest.Loopback...) {
		f.Add(netip.MustParseAddr(a.IP).AsSlice())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		address, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		strict, loose := netguard.Policy{}.Check(address), netguard.Policy{AllowLoopback: true}.Check(address)
		if strict == nil && loose != nil {
			t.Fatalf("%s is refused only if loopback is allowed: %v", address, loose)
		}
		if !address.Is4() {
			return
		}
		four := address.As4()
		mapped := netip.AddrFrom16(address.As16())
		translated := netip.AddrFrom16([16]byte{0, 0x64, 0xff, 0x9b, 12: four[0], 13: four[1], 14: four[2], 15: four[3]})
		for _, form := range []netip.Addr{mapped, translated} {
			if got := (netguard.Policy{}).Check(form); (got == nil) != (strict == nil) {
				t.Fatalf("%s is judged as %v, and %s as %v", address, strict, form, got)
			}
		}
	})
}
