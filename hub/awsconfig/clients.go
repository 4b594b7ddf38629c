package awsconfig

import (
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"k8s.io/utils/lru"
)

// mostClients of a service that are kept.
const mostClients = 512

// Clients of one service, one for each region and role: what a client learns, such as
// how fast it may call, is kept with it.
type Clients[C any] struct {
	config *Config
	create func(aws.Config) C

	// mu guards made.
	mu   sync.Mutex
	made *lru.Cache
}

type clientKey struct {
	region string
	role   Role
}

// NewClients of the service whose client create makes.
func NewClients[C any](config *Config, create func(aws.Config) C) *Clients[C] {
	return &Clients[C]{config: config, create: create, made: lru.New(mostClients)}
}

// In is the client for a region with the credentials of a role.
func (c *Clients[C]) In(region string, role Role) C {
	key := clientKey{region, role}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, found := c.made.Get(key); found {
		return known.(C)
	}
	client := c.create(c.config.In(region, role))
	c.made.Add(key, client)
	return client
}
