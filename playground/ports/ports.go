// Package ports chooses addresses for programs that get the address to listen at.
//
// Purpose: a port that the kernel chose and that was closed again is one that the kernel
// gives to the outgoing connections of other processes too. The program then cannot listen.
//
// Contract: the addresses of Free are on loopback, and their ports are below those that
// Linux, macOS and Windows give to outgoing connections.
//
// Trade-offs: a port is not reserved. Two tests get the same one if both choose it before
// one listens, which is one case in 12,000.
package ports

import (
	"math/rand/v2"
	"net"
	"strconv"
)

// Free returns an address that nobody listened on a moment ago.
func Free() (address string, err error) {
	const first, last, tries = 20000, 32000, 100
	for range tries {
		var listener net.Listener
		if listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(last-first)))); err == nil {
			return listener.Addr().String(), listener.Close()
		}
	}
	return "", err
}
