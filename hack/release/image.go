package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	projectURL = "https://github.com/capstan-hub/capstan"
	license    = "Apache-2.0"
	// annotationName is the full reference by which containerd names an image that it imports
	// (ctr, kind, and Docker where containerd has its images).
	annotationName = "io.containerd.image.name"
	// annotationRef is the tag: skopeo and podman select an image of an archive by it.
	annotationRef = "org.opencontainers.image.ref.name"
)

// tagForm is the grammar of tags in the OCI distribution specification.
var tagForm = regexp.MustCompile(`^\w[\w.-]{0,127}$`)

// release is one run.
type release struct {
	root, out, helm string
	// log gets lines of progress.
	log io.Writer
	// work holds binaries and parts of archives until the run ends.
	work       string
	source     source
	version    string
	repository reference.Named
	imagePlatforms,
	cliPlatforms []platform
}

// built is one artifact in an OCI archive.
type built struct {
	// Archive is the name of the file in the output directory.
	Archive string `json:"archive"`
	// Name is the full reference with a tag.
	Name string `json:"name"`
	// Digest is that of the index, or of the chart's manifest.
	Digest string `json:"digest"`
	// Platforms has the digest of the manifest of each platform; nothing for the chart.
	Platforms map[string]string `json:"platforms,omitempty"`
}

// parseRepository returns the full name of a repository: capstan is docker.io/library/capstan,
// which is also what a kubelet reads into it.
func parseRepository(name string) (reference.Named, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return nil, fmt.Errorf("image %q: %w", name, err)
	}
	if !reference.IsNameOnly(named) {
		return nil, fmt.Errorf("image %q: leave out the tag and the digest; the tag is the version", name)
	}
	return named, nil
}

// neighbour returns the repository next to that of the hub, such as charts/capstan.
func (r *release) neighbour(name string) (reference.Named, error) {
	return parseRepository(path.Join(path.Dir(r.repository.Name()), name))
}

// begin creates the directory for binaries and parts, unless there is one, and returns what
// deletes it. It is not in the output directory: an interrupted run must leave no files there.
func (r *release) begin() (done func(), err error) {
	if r.work != "" {
		return func() {}, nil
	}
	if r.work, err = os.MkdirTemp("", "capstan-release-"); err != nil {
		return nil, err
	}
	return func() { _ = os.RemoveAll(r.work) }, nil
}

// images compiles the programs and writes the archive of each image.
func (r *release) images(ctx context.Context) ([]built, error) {
	if !tagForm.MatchString(r.version) {
		return nil, fmt.Errorf("version %q cannot be the tag of an image: use letters, digits, dots and dashes, at most 128, such as v1.2.3", r.version)
	}
	for _, p := range r.imagePlatforms {
		if p.os != "linux" {
			return nil, fmt.Errorf("platform %s: the images are for linux", p)
		}
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return nil, err
	}
	done, err := r.begin()
	if err != nil {
		return nil, err
	}
	defer done()
	for _, p := range r.imagePlatforms {
		if err := r.compile(ctx, p, programs()...); err != nil {
			return nil, err
		}
	}
	var all []built
	for _, program := range programs() {
		image, err := r.image(program)
		if err != nil {
			return nil, fmt.Errorf("image of %s: %w", program, err)
		}
		_, _ = fmt.Fprintf(r.log, "  %s: %s@%s\n", filepath.Join(r.out, image.Archive), image.Name, image.Digest)
		all = append(all, image)
	}
	return all, nil
}

// image writes the archive of one program's image, for all platforms.
func (r *release) image(program string) (built, error) {
	repository, err := r.neighbour(program)
	if err != nil {
		return built{}, err
	}
	if program == "capstan" {
		repository = r.repository
	}
	base, err := r.layer(rootfs())
	if err != nil {
		return built{}, err
	}
	labels := r.labels(program)
	result := built{Archive: program + "-image.tar", Name: repository.Name() + ":" + r.version, Platforms: map[string]string{}}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var images []v1.Image
	for _, p := range r.imagePlatforms {
		binary, err := r.layer([]entry{{name: program, mode: 0o755, path: r.binary(program, p)}}, nil)
		if err != nil {
			return built{}, err
		}
		image, err := newImage(p, r.source.time, labels, program, base, binary)
		if err != nil {
			return built{}, err
		}
		digest, err := image.Digest()
		if err != nil {
			return built{}, err
		}
		result.Platforms[p.String()] = digest.String()
		images = append(images, image)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	annotated, isIndex := mutate.Annotations(index, labels).(v1.ImageIndex)
	if !isIndex {
		return built{}, errors.New("an annotated index is no index")
	}
	digest, err := annotated.Digest()
	if err != nil {
		return built{}, err
	}
	result.Digest = digest.String()
	return result, r.writeLayout(result, func(p layout.Path, annotations map[string]string) error {
		return p.AppendIndex(annotated, layout.WithAnnotations(annotations))
	}, images...)
}

// labels are on each image, and are the annotations of its manifest and of the index.
func (r *release) labels(program string) map[string]string {
	titles := map[string]string{
		"capstan":        "Promotes Flux applications across the clusters of a Cluster API management cluster",
		"capa-annotator": "Annotates node groups of Cluster API Provider AWS for scaling from zero",
	}
	labels := map[string]string{
		"org.opencontainers.image.title":         program,
		"org.opencontainers.image.description":   titles[program],
		"org.opencontainers.image.source":        projectURL,
		"org.opencontainers.image.url":           projectURL,
		"org.opencontainers.image.documentation": projectURL + "/tree/main/docs",
		"org.opencontainers.image.licenses":      license,
		"org.opencontainers.image.version":       r.version,
		"org.opencontainers.image.created":       r.source.time.Format(time.RFC3339),
	}
	if r.source.revision != "" {
		labels["org.opencontainers.image.revision"] = r.source.revision
	}
	return labels
}

// newImage returns the image of one platform. It has an entry point and no command: arguments
// come from the Deployment.
func newImage(p platform, at time.Time, labels map[string]string, program string, layers ...v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(image, &v1.ConfigFile{
		OS: p.os, Architecture: p.arch, Created: v1.Time{Time: at},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       fmt.Sprintf("%d:%d", userID, userID),
			Entrypoint: []string{"/" + program},
			Env:        []string{"PATH=/"},
			WorkingDir: "/",
			Labels:     labels,
		},
	})
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		image, err = mutate.Append(image, mutate.Addendum{
			Layer:     layer,
			MediaType: types.OCILayer,
			History:   v1.History{Created: v1.Time{Time: at}, CreatedBy: "hack/release"},
		})
		if err != nil {
			return nil, err
		}
	}
	annotated, isImage := mutate.Annotations(image, labels).(v1.Image)
	if !isImage {
		return nil, errors.New("an annotated image is no image")
	}
	return annotated, nil
}

// layer makes a compressed layer of entries.
func (r *release) layer(entries []entry, err error) (v1.Layer, error) {
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	if err := writeTar(&content, r.source.time, entries); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// writeLayout writes an archive of the OCI image layout with one named artifact.
//
// A Docker Engine that keeps images in its own store reads only manifest.json, which can name
// one platform: the first one.
func (r *release) writeLayout(artifact built, add func(layout.Path, map[string]string) error, images ...v1.Image) error {
	directory, err := os.MkdirTemp(r.work, "layout-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	p, err := layout.Write(directory, empty.Index)
	if err != nil {
		return err
	}
	_, tag := cutTag(artifact.Name)
	if err := add(p, map[string]string{annotationName: artifact.Name, annotationRef: tag}); err != nil {
		return err
	}
	if len(images) > 0 {
		manifest, err := dockerManifest(artifact.Name, images[0])
		if err != nil {
			return err
		}
		if err := p.WriteFile("manifest.json", manifest, 0o644); err != nil {
			return err
		}
	}
	entries, err := directoryEntries(directory)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(r.out, artifact.Archive), func(out io.Writer) error {
		return writeTar(out, r.source.time, entries)
	})
}

// cutTag splits a reference at its tag, which is empty if there is none.
func cutTag(name string) (repository, tag string) {
	at := strings.LastIndex(name, ":")
	if at < 0 || strings.Contains(name[at:], "/") {
		return name, ""
	}
	return name[:at], name[at+1:]
}

// dockerManifest returns the manifest.json of Docker's image specification 1.2, whose paths are
// blobs of the layout.
func dockerManifest(name string, image v1.Image) ([]byte, error) {
	blob := func(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }
	config, err := image.ConfigName()
	if err != nil {
		return nil, err
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return nil, err
	}
	item := tarball.Descriptor{Config: blob(config), RepoTags: []string{reference.FamiliarString(named)}}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return nil, err
		}
		item.Layers = append(item.Layers, blob(digest))
	}
	return json.Marshal(tarball.Manifest{item})
}
