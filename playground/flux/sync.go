package flux

import (
	"context"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// applier is the field manager of kustomize-controller.
	applier = client.FieldOwner("kustomize-controller")
	// defaultEvery is the interval at which a Sync polls, short enough for people who wait.
	defaultEvery = 500 * time.Millisecond
	// attemptTimeout bounds one poll and the applies after it, so that a server that hangs
	// blocks only one attempt.
	attemptTimeout = 30 * time.Second
)

// Sync simulates source-controller and kustomize-controller for the repository of a fleet.
// When its branch changes, it applies the directory clusters/<name> to the cluster of that
// name.
type Sync struct {
	Repository GitRepository
	// Clusters by name; clients of their administrators.
	Clusters map[string]client.Client
	// Every is the interval at which it polls the branch. Zero means 0.5 s.
	Every time.Duration
	// Logger gets the errors of fetches and applies, which are retried.
	Logger logr.Logger
}

// Start runs until the context ends.
func (s Sync) Start(ctx context.Context) error {
	every := s.Every
	if every == 0 {
		every = defaultEvery
	}
	applied := map[string]plumbing.Hash{}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := s.look(ctx, applied); err != nil && ctx.Err() == nil {
			s.Logger.Error(err, "fleet repository not applied")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// look once, and apply where what is applied is not the newest.
func (s Sync) look(ctx context.Context, applied map[string]plumbing.Hash) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	head, err := s.Repository.head(ctx)
	if err != nil {
		return err
	}
	var behind []string
	for name := range s.Clusters {
		if applied[name] != head {
			behind = append(behind, name)
		}
	}
	if len(behind) == 0 {
		return nil
	}
	commit, err := s.Repository.fetch(ctx)
	if err != nil {
		return err
	}
	// A cluster that fails does not block the others.
	errs := make([]error, len(behind))
	var group sync.WaitGroup
	for i, name := range behind {
		group.Go(func() { errs[i] = apply(ctx, s.Clusters[name], commit, path.Join("clusters", name)) })
	}
	group.Wait()
	for i, name := range behind {
		if errs[i] != nil {
			s.Logger.Error(errs[i], "cluster not applied", "cluster", name, "commit", commit.Hash.String())
			continue
		}
		applied[name] = commit.Hash
	}
	return nil
}

// apply applies the manifests of a directory, server-side.
func apply(ctx context.Context, c client.Client, commit *object.Commit, directory string) error {
	objects, err := manifests(commit, directory)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), applier, client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
		}
	}
	return nil
}
