package hub_test

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/instancestate"
)

// A program that embeds the hub acts on the events of instances: a message of SQS is deleted only after the program has
// reported its event.
func ExampleOptions_handlers() {
	run := func(ctx context.Context) error {
		cluster, err := config.GetConfig()
		if err != nil {
			return err
		}
		aws, err := awsconfig.Load(ctx, awsconfig.Options{})
		if err != nil {
			return err
		}
		defer aws.Close()

		woken := workqueue.NewTyped[instancestate.Woken]() // Handle's function must not block.
		var drainer *instancestate.Handler
		h, err := hub.New(hub.Options{Config: cluster, AWS: aws, Handlers: []func(*instancestate.Labeler) error{
			func(l *instancestate.Labeler) error {
				drainer = l.Handle("drainer", woken.Add)
				return nil
			},
		}})
		if err != nil {
			return err
		}
		var workers sync.WaitGroup
		workers.Go(func() {
			for {
				w, shutdown := woken.Get()
				if shutdown {
					return
				}
				if event, err := instancestate.GetEventFromSQS(ctx, w.Object); err == nil {
					fmt.Println("draining the node of", w.Object.Name, "because of", event.DetailType)
					drainer.Processed(w, event.ID)
				}
				woken.Done(w)
			}
		})
		defer workers.Wait()
		defer woken.ShutDown()
		return h.Start(ctx)
	}
	_ = run
}
