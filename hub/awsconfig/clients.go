package awsconfig

import (
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"k8s.io/utils/lru"
)

// mostClients is the maximum number of kept clients of a service.
const mostClients = 512

// Clients keeps the clients of one service, one for each region and role. So the state of a
// client, such as its rate limit, is kept between calls.
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

// NewClients returns an empty set of clients, which create creates.
func NewClients[C any](config *Config, create func(aws.Config) C) *Clients[C] {
	return &Clients[C]{config: config, create: create, made: lru.New(mostClients)}
}

// In returns the client for a region with the credentials of a role.
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
