// Package ports chooses addresses for programs that get the address to listen at.
//
// Purpose: a port that the kernel chose and that was closed again is one that the kernel
// gives to the outgoing connections of other processes too. The program then cannot listen.
//
// Contract: the addresses of Free are on loopback, and their ports are below those that
// Linux, macOS and Windows give to outgoing connections. A process does not get an address twice.
//
// Trade-offs: a port is not reserved. Two processes get the same one if both choose it before
// one listens, which is one case in 12,000.
package ports

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// returned are the ports that Free has returned.
var returned sync.Map

// Free returns an address at which no process listened when it was chosen. After a hundred
// attempts it returns the error of the last one.
func Free() (address string, err error) {
	const first, last, attempts = 20000, 32000, 100
	for range attempts {
		port := first + rand.IntN(last-first)
		var listener net.Listener
		if listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err != nil {
			continue
		}
		if _, twice := returned.LoadOrStore(port, true); !twice {
			return listener.Addr().String(), listener.Close()
		}
		_ = listener.Close()
	}
	if err == nil {
		err = errors.New("no port from 20000 to 31999 was found that is free and was not used before")
	}
	return "", err
}
