package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"time"

	"code.gitea.io/sdk/gitea"
	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/memfs"
	"github.com/go-git/go-billy/v5/util"
	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	transport "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"
)

// Main is the first branch of a repository.
const Main = "main"

const (
	originName = "origin"
	// pushTries is the number of attempts to push. A concurrent push causes one of several
	// errors.
	pushTries = 5
)

var errPush = errors.New("not pushed")

// Repository is a repository on the server.
type Repository struct {
	server      *Server
	Owner, Name string
}

// CreateRepository creates a private repository of an organisation, with the files as the
// first commit of its main branch. It creates the organisation if it does not exist.
func (s *Server) CreateRepository(ctx context.Context, organisation, name string, files map[string]string) (*Repository, error) {
	c, err := s.Client(ctx, s.admin)
	if err != nil {
		return nil, err
	}
	if _, answer, err := c.GetOrg(organisation); err != nil {
		if answer == nil || answer.StatusCode != http.StatusNotFound {
			return nil, fmt.Errorf("reading organisation %s: %w", organisation, err)
		}
		if _, _, err := c.CreateOrg(gitea.CreateOrgOption{Name: organisation}); err != nil {
			return nil, fmt.Errorf("creating organisation %s: %w", organisation, err)
		}
	}
	if _, _, err := c.CreateOrgRepo(organisation, gitea.CreateRepoOption{Name: name, DefaultBranch: Main, Private: true}); err != nil {
		return nil, fmt.Errorf("creating repository %s/%s: %w", organisation, name, err)
	}
	r := &Repository{server: s, Owner: organisation, Name: name}
	if err := r.fill(ctx, files); err != nil {
		return nil, fmt.Errorf("filling repository %s/%s: %w", organisation, name, err)
	}
	return r, nil
}

// URL returns the clone URL.
func (r *Repository) URL() string { return fmt.Sprintf("%s/%s/%s.git", r.server.url, r.Owner, r.Name) }

// Allow gives a user the right to push and merge.
func (r *Repository) Allow(ctx context.Context, user string) error {
	c, err := r.client(ctx)
	if err != nil {
		return err
	}
	write := gitea.AccessModeWrite
	if _, err := c.AddCollaborator(r.Owner, r.Name, user, gitea.AddCollaboratorOption{Permission: &write}); err != nil {
		return fmt.Errorf("giving %s access to %s/%s: %w", user, r.Owner, r.Name, err)
	}
	return nil
}

// Commit changes one file of a branch as a person, pushes the commit and returns it. edit
// gets the content of the file (empty if it does not exist).
func (r *Repository) Commit(ctx context.Context, branch, file, message string, edit func(string) string) (string, error) {
	for try := 1; ; try++ {
		commit, err := r.commit(ctx, branch, message, func(tree billy.Filesystem) error {
			before, err := util.ReadFile(tree, file)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			return write(tree, file, edit(string(before)))
		})
		if errors.Is(err, errPush) && try < pushTries && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("committing %q to %s of %s/%s: %w", message, branch, r.Owner, r.Name, err)
		}
		return commit, nil
	}
}

func (r *Repository) commit(ctx context.Context, branch, message string, change func(billy.Filesystem) error) (string, error) {
	clone, tree, err := r.clone(ctx, branch)
	if err != nil {
		return "", err
	}
	if err := change(tree); err != nil {
		return "", err
	}
	return r.push(ctx, clone, branch, message)
}

// fill makes the first commit, and waits until Gitea has processed the push, which it does
// asynchronously.
func (r *Repository) fill(ctx context.Context, files map[string]string) error {
	tree := memfs.New()
	clone, err := gogit.InitWithOptions(memory.NewStorage(), tree, gogit.InitOptions{DefaultBranch: plumbing.NewBranchReferenceName(Main)})
	if err != nil {
		return err
	}
	if _, err := clone.CreateRemote(&config.RemoteConfig{Name: originName, URLs: []string{r.URL()}}); err != nil {
		return err
	}
	for name, content := range files {
		if err := write(tree, name, content); err != nil {
			return err
		}
	}
	if _, err := r.push(ctx, clone, Main, "The fleet as it is"); err != nil {
		return err
	}
	c, err := r.client(ctx)
	if err != nil {
		return err
	}
	return r.server.poll(ctx, func() (bool, error) {
		known, _, err := c.GetRepo(r.Owner, r.Name)
		return err == nil && !known.Empty, err
	})
}

// Read returns the content of a file at the head of a branch.
func (r *Repository) Read(ctx context.Context, branch, file string) (string, error) {
	c, err := r.client(ctx)
	if err != nil {
		return "", err
	}
	reader, _, err := c.GetFileReader(r.Owner, r.Name, branch, file)
	if err != nil {
		return "", fmt.Errorf("reading %s of %s in %s/%s: %w", file, branch, r.Owner, r.Name, err)
	}
	defer reader.Close()
	content, err := io.ReadAll(reader)
	return string(content), err
}

func (r *Repository) clone(ctx context.Context, branch string) (*gogit.Repository, billy.Filesystem, error) {
	tree := memfs.New()
	clone, err := gogit.CloneContext(ctx, memory.NewStorage(), tree, &gogit.CloneOptions{
		URL: r.URL(), Auth: r.auth(), CABundle: r.server.ca, RemoteName: originName,
		ReferenceName: plumbing.NewBranchReferenceName(branch), SingleBranch: true, Depth: 1, Tags: gogit.NoTags,
	})
	return clone, tree, err
}

// push commits all changes and pushes the commit.
func (r *Repository) push(ctx context.Context, clone *gogit.Repository, branch, message string) (string, error) {
	tree, err := clone.Worktree()
	if err != nil {
		return "", err
	}
	if err := tree.AddWithOptions(&gogit.AddOptions{All: true}); err != nil {
		return "", err
	}
	commit, err := tree.Commit(message, &gogit.CommitOptions{
		Author: &object.Signature{Name: "Team", Email: "team@playground.invalid", When: time.Now()},
	})
	if err != nil {
		return "", err
	}
	head := plumbing.NewBranchReferenceName(branch)
	err = clone.PushContext(ctx, &gogit.PushOptions{
		RemoteName: originName, Auth: r.auth(), CABundle: r.server.ca,
		RefSpecs: []config.RefSpec{config.RefSpec(head + ":" + head)},
	})
	if err != nil {
		return "", fmt.Errorf("%w: %w", errPush, err)
	}
	return commit.String(), nil
}

func write(tree billy.Filesystem, name, content string) error {
	if err := tree.MkdirAll(path.Dir(name), dirMode); err != nil {
		return err
	}
	return util.WriteFile(tree, name, []byte(content), fileMode)
}

func (r *Repository) auth() *transport.BasicAuth {
	return &transport.BasicAuth{Username: r.server.admin.Username, Password: r.server.admin.Token}
}

func (r *Repository) client(ctx context.Context) (*gitea.Client, error) {
	return r.server.Client(ctx, r.server.admin)
}
