package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"
)

// push copies the images, and the chart of a release, to the repositories that images.json has.
// Credentials are those of `docker login`. The digests stay the same.
func push(ctx context.Context, out string, insecure bool, log io.Writer) error {
	text, err := os.ReadFile(filepath.Join(out, imagesFile))
	if err != nil {
		return fmt.Errorf("run `make image` or `make release` first: %w", err)
	}
	var artifacts []built
	if err := json.Unmarshal(text, &artifacts); err != nil {
		return fmt.Errorf("%s: %w", imagesFile, err)
	}
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return fmt.Errorf("credentials of registries: %w", err)
	}
	client := &auth.Client{Client: retry.DefaultClient, Cache: auth.NewCache(), Credential: credentials.Credential(store)}
	for _, artifact := range artifacts {
		if err := pushOne(ctx, out, artifact, client, insecure); err != nil {
			return fmt.Errorf("push %s: %w", artifact.Name, err)
		}
		_, _ = fmt.Fprintf(log, "  pushed %s@%s\n", artifact.Name, artifact.Digest)
	}
	return nil
}

func pushOne(ctx context.Context, out string, artifact built, client *auth.Client, insecure bool) error {
	from, err := oci.NewFromTar(ctx, filepath.Join(out, artifact.Archive))
	if err != nil {
		return err
	}
	repository, tag := cutTag(artifact.Name)
	to, err := remote.NewRepository(repository)
	if err != nil {
		return err
	}
	to.Client, to.PlainHTTP = client, insecure
	pushed, err := oras.Copy(ctx, from, tag, to, tag, oras.DefaultCopyOptions)
	if err != nil {
		return err
	}
	if pushed.Digest.String() != artifact.Digest {
		return fmt.Errorf("the archive has %s, and %s has %s: build them anew", pushed.Digest, imagesFile, artifact.Digest)
	}
	return nil
}
