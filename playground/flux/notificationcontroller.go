package flux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/capstan-hub/capstan/playground/ports"
	"github.com/capstan-hub/capstan/playground/process"
)

// ErrNoNotificationController is returned by StartNotificationController when the binary does not
// exist.
var ErrNoNotificationController = errors.New("notification-controller is not built: run `make notification-controller`")

// NotificationController is a process of Flux's notification-controller, for one cluster.
type NotificationController struct {
	dir, events string
	process     *process.Process
}

// StartNotificationController starts notification-controller for the cluster of the kubeconfig. It
// listens at free ports of loopback. A client can post events when EventsURL answers.
func StartNotificationController(kubeconfig []byte) (_ *NotificationController, err error) {
	dir, err := os.MkdirTemp("", "capstan-notification-controller-")
	if err != nil {
		return nil, fmt.Errorf("starting notification-controller: %w", err)
	}
	n := &NotificationController{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("starting notification-controller: %w", err), n.Stop())
		}
	}()
	credentials := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(credentials, kubeconfig, kubeconfigMode); err != nil {
		return nil, err
	}
	events, err := ports.Free()
	if err != nil {
		return nil, err
	}
	webhooks, err := ports.Free()
	if err != nil {
		return nil, err
	}
	n.events = "http://" + events + "/"
	const off = "0"
	path := process.Built("notification-controller")
	n.process, err = process.Start(process.Options{
		Path: path,
		Args: []string{"--metrics-addr=" + off, "--health-addr=" + off, "--events-addr=" + events, "--receiverAddr=" + webhooks},
		Env:  []string{"KUBECONFIG=" + credentials, "RUNTIME_NAMESPACE=flux-system", "HOME=" + dir, "TMPDIR=" + dir},
		Dir:  dir, Log: filepath.Join(dir, "log"),
	})
	if errors.Is(err, process.ErrNotBuilt) {
		return nil, fmt.Errorf("%w (%s does not exist)", ErrNoNotificationController, path)
	}
	return n, err
}

// EventsURL is the value for --events-addr.
func (n *NotificationController) EventsURL() string { return n.events }

// Log returns the end of its output.
func (n *NotificationController) Log() string { return n.process.Tail() }

// Stop ends the process. It also returns an error if the process had ended before.
func (n *NotificationController) Stop() error {
	var err error
	if n.process != nil {
		err = n.process.Stop()
	}
	return errors.Join(err, os.RemoveAll(n.dir))
}
