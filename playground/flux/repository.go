package flux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// ErrNoBranch is returned for a branch that the repository does not have.
var ErrNoBranch = errors.New("the repository has no such branch")

// GitRepository is the repository whose manifests are applied to a cluster.
type GitRepository struct {
	// URL, over HTTPS, and Branch.
	URL, Branch string
	// Username and Password, or a token as the password.
	Username, Password string
	// CA that signed the server's certificate, in PEM format.
	CA []byte
}

// head returns the head commit of the branch.
func (r GitRepository) head(ctx context.Context) (plumbing.Hash, error) {
	remote := gogit.NewRemote(memory.NewStorage(), &config.RemoteConfig{Name: "origin", URLs: []string{r.URL}})
	refs, err := remote.ListContext(ctx, &gogit.ListOptions{Auth: r.auth(), CABundle: r.CA})
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("listing the branches of %s: %w", r.URL, err)
	}
	name := plumbing.NewBranchReferenceName(r.Branch)
	for _, ref := range refs {
		if ref.Name() == name {
			return ref.Hash(), nil
		}
	}
	return plumbing.ZeroHash, fmt.Errorf("%s: %w: %s", r.URL, ErrNoBranch, r.Branch)
}

// fetch reads the newest commit of the branch.
func (r GitRepository) fetch(ctx context.Context) (*object.Commit, error) {
	clone, err := gogit.CloneContext(ctx, memory.NewStorage(), nil, &gogit.CloneOptions{
		URL: r.URL, Auth: r.auth(), CABundle: r.CA,
		ReferenceName: plumbing.NewBranchReferenceName(r.Branch), SingleBranch: true, Depth: 1, Tags: gogit.NoTags,
	})
	if err != nil {
		return nil, fmt.Errorf("fetching %s: %w", r.URL, err)
	}
	head, err := clone.Head()
	if err != nil {
		return nil, err
	}
	return clone.CommitObject(head.Hash())
}

func (r GitRepository) auth() *http.BasicAuth {
	return &http.BasicAuth{Username: r.Username, Password: r.Password}
}

// manifests returns the manifests of a directory and its subdirectories, in the order in
// which they are applied: Namespaces before the objects in them.
func manifests(commit *object.Commit, directory string) ([]*unstructured.Unstructured, error) {
	root, err := commit.Tree()
	if err != nil {
		return nil, err
	}
	tree, err := root.Tree(directory)
	if err != nil {
		return nil, fmt.Errorf("%s at %s: %w", directory, commit.Hash, err)
	}
	var objects []*unstructured.Unstructured
	err = tree.Files().ForEach(func(file *object.File) error {
		if ext := path.Ext(file.Name); ext != ".yaml" && ext != ".yml" {
			return nil
		}
		reader, err := file.Reader()
		if err != nil {
			return err
		}
		defer reader.Close()
		some, err := decode(reader)
		if err != nil {
			return fmt.Errorf("%s at %s: %w", path.Join(directory, file.Name), commit.Hash, err)
		}
		objects = append(objects, some...)
		return nil
	})
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return order(a) - order(b) })
	return objects, err
}

func order(obj *unstructured.Unstructured) int {
	if obj.GetKind() == "Namespace" && !strings.Contains(obj.GetAPIVersion(), "/") {
		return 0
	}
	return 1
}

// decode decodes the documents of a YAML file.
func decode(r io.Reader) ([]*unstructured.Unstructured, error) {
	const buffer = 4 << 10
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(r, buffer); ; {
		obj := &unstructured.Unstructured{}
		switch err := decoder.Decode(&obj.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(obj.Object) > 0:
			objects = append(objects, obj)
		}
	}
}
