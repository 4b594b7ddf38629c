package hub

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/approval"
	"github.com/capstan-hub/capstan/hub/pipeline"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// hookQPS and hookBurst are for the promotion hook's own client, so that calls, signed or
// not, use nothing of the hub's own limits. A call needs about five requests.
const hookQPS, hookBurst = 50, 100

// Hook is the part of the Options that says how the promotion hook is served.
type Hook struct {
	// BindAddress of /promotion and /approval, such as ":8082"; "0" or empty for none.
	BindAddress string
	// CertFile and KeyFile serve them with TLS; plain HTTP if empty.
	CertFile, KeyFile string
	// LegacySignatures accepts weave's signatures, too.
	LegacySignatures bool
	// RateLimit is how many calls a client may make in 30 s; approval.DefaultRateLimit
	// if 0.
	RateLimit int
}

// addHook adds the promotion hook to the manager, on every replica.
func addHook(mgr manager.Manager, o Options, waker *pipeline.Waker) error {
	if o.Hook.BindAddress == "0" {
		return nil
	}
	config := rest.CopyConfig(o.Config)
	config.QPS, config.Burst = hookQPS, hookBurst
	own, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making the promotion hook's client: %w", err)
	}
	return mgr.Add(approval.New(approval.Options{
		BindAddress:      o.Hook.BindAddress,
		CertFile:         o.Hook.CertFile,
		KeyFile:          o.Hook.KeyFile,
		LegacySignatures: o.Hook.LegacySignatures,
		Namespaces:       o.Namespaces,
		RateLimit:        o.Hook.RateLimit,
		Client:           own,
		Cache:            promotions.IndexedReader(mgr.GetCache()),
		Leads:            func() bool { return closed(mgr.Elected()) },
		Wake:             func(key types.NamespacedName) { waker.Wake([]types.NamespacedName{key}, false) },
		Registerer:       o.Registerer,
		Clock:            o.Clock,
		Logger:           o.Logger.WithName("hook"),
	}))
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
