package flux

import "github.com/capstan-hub/capstan/playground/ports"

// NotificationController is a process of Flux's notification-controller, for one cluster.
type NotificationController struct {
	*program
	events string
}

// StartNotificationController starts notification-controller for the cluster of the kubeconfig. It
// listens at free ports of loopback. A client can post events when EventsURL answers.
func StartNotificationController(kubeconfig []byte) (*NotificationController, error) {
	events, err := ports.Free()
	if err != nil {
		return nil, err
	}
	webhooks, err := ports.Free()
	if err != nil {
		return nil, err
	}
	p, err := startProgram("notification-controller", kubeconfig, func(string) []string {
		return []string{"--events-addr=" + events, "--receiverAddr=" + webhooks}
	})
	if err != nil {
		return nil, err
	}
	return &NotificationController{program: p, events: "http://" + events + "/"}, nil
}

// EventsURL is the value for --events-addr.
func (n *NotificationController) EventsURL() string { return n.events }
