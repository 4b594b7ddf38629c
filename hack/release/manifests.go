package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// manifests renders the kustomizations that a management cluster needs, with the images of this
// release by tag and digest.
func (r *release) manifests(images []built) error {
	for _, rendered := range []struct{ file, kustomization string }{
		{"install.yaml", "config/default"},
		{"capa-annotator.yaml", "config/capa-annotator"},
		{"cluster-secrets.yaml", "config/rbac/cluster-secrets"},
		{"pipeline-secrets.yaml", "config/rbac/pipeline-secrets"},
	} {
		content, err := r.kustomize(rendered.kustomization, images)
		if err != nil {
			return fmt.Errorf("%s from %s: %w", rendered.file, rendered.kustomization, err)
		}
		if err := r.write(rendered.file, content); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) kustomize(kustomization string, images []built) ([]byte, error) {
	overlay, err := os.MkdirTemp(r.work, "overlay-")
	if err != nil {
		return nil, err
	}
	// Kustomize refuses an absolute path, and compares paths without symbolic links.
	overlay, err = filepath.EvalSymlinks(overlay)
	if err != nil {
		return nil, err
	}
	base, err := filepath.EvalSymlinks(filepath.Join(r.root, kustomization))
	if err != nil {
		return nil, err
	}
	relative, err := filepath.Rel(overlay, base)
	if err != nil {
		return nil, err
	}
	k := types.Kustomization{
		TypeMeta:  types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		Resources: []string{filepath.ToSlash(relative)},
	}
	for _, image := range images {
		repository, tag := cutTag(image.Name)
		k.Images = append(k.Images, types.Image{
			Name: strings.TrimSuffix(image.Archive, "-image.tar"), NewName: repository, NewTag: tag, Digest: image.Digest,
		})
	}
	text, err := yaml.Marshal(k)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), text, 0o600); err != nil {
		return nil, err
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	if err != nil {
		return nil, err
	}
	return objects.AsYaml()
}

// Media types of a chart in a registry, as Helm defines them.
const (
	chartConfigType  = "application/vnd.cncf.helm.config.v1+json"
	chartContentType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// chart packages the chart with the version of the release and the image's repository, as a
// .tgz file and as an OCI archive.
func (r *release) chart(ctx context.Context) (built, error) {
	staged := filepath.Join(r.work, "chart", "capstan")
	if err := r.stageChart(staged); err != nil {
		return built{}, err
	}
	version := strings.TrimPrefix(r.version, "v")
	packaged := filepath.Join(r.work, "chart")
	command := exec.CommandContext(ctx, r.helm, "package", staged, "--version="+version, "--app-version="+r.version, "--destination="+packaged)
	if output, err := command.CombinedOutput(); err != nil {
		return built{}, fmt.Errorf("%s: %w\n%s", command, err, output)
	}
	name := "capstan-" + version + ".tgz"
	tgz, err := os.ReadFile(filepath.Join(packaged, name))
	if err != nil {
		return built{}, err
	}
	if err := r.write(name, tgz); err != nil {
		return built{}, err
	}

	repository, err := r.neighbour("charts/capstan")
	if err != nil {
		return built{}, err
	}
	result := built{Archive: "capstan-chart.tar", Name: repository.Name() + ":" + version}
	config, err := chartConfig(staged, version, r.version)
	if err != nil {
		return built{}, err
	}
	directory := filepath.Join(r.work, "chart-layout")
	digest, err := r.chartLayout(ctx, directory, version, config, tgz)
	if err != nil {
		return built{}, err
	}
	result.Digest = digest
	entries, err := directoryEntries(directory)
	if err != nil {
		return built{}, err
	}
	return result, writeFile(filepath.Join(r.out, result.Archive), func(out io.Writer) error {
		return writeTar(out, r.source.time, entries)
	})
}

// stageChart copies the chart, with the repository of the image as the default. Helm writes the
// times of files into the package: all get the commit's.
func (r *release) stageChart(staged string) error {
	if err := os.CopyFS(staged, os.DirFS(filepath.Join(r.root, "config", "chart"))); err != nil {
		return err
	}
	path := filepath.Join(staged, "values.yaml")
	values, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	const unset = "\n  repository: capstan\n"
	if bytes.Count(values, []byte(unset)) != 1 {
		return errors.New("config/chart/values.yaml must have the line \"  repository: capstan\" once, under image")
	}
	values = bytes.Replace(values, []byte(unset), []byte("\n  repository: "+r.repository.Name()+"\n"), 1)
	if err := os.WriteFile(path, values, 0o600); err != nil {
		return err
	}
	return filepath.WalkDir(staged, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, r.source.time, r.source.time)
	})
}

// chartConfig returns Chart.yaml as JSON, which Helm has as the artifact's configuration.
func chartConfig(staged, version, appVersion string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(staged, "Chart.yaml"))
	if err != nil {
		return nil, err
	}
	var chart map[string]any
	if err := yaml.Unmarshal(text, &chart); err != nil {
		return nil, fmt.Errorf("Chart.yaml: %w", err)
	}
	chart["version"], chart["appVersion"] = version, appVersion
	return json.Marshal(chart)
}

// chartLayout writes a directory of the OCI image layout and returns the manifest's digest.
func (r *release) chartLayout(ctx context.Context, directory, tag string, config, tgz []byte) (string, error) {
	store, err := oci.New(directory)
	if err != nil {
		return "", err
	}
	put := func(mediaType string, blob []byte) (v1.Descriptor, error) {
		d := content.NewDescriptorFromBytes(mediaType, blob)
		return d, store.Push(ctx, d, bytes.NewReader(blob))
	}
	configDescriptor, err := put(chartConfigType, config)
	if err != nil {
		return "", err
	}
	layer, err := put(chartContentType, tgz)
	if err != nil {
		return "", err
	}
	// An empty artifact type: Helm identifies a chart by the media type of its configuration.
	manifest, err := oras.PackManifest(ctx, store, oras.PackManifestVersion1_1, "", oras.PackManifestOptions{
		ConfigDescriptor: &configDescriptor,
		Layers:           []v1.Descriptor{layer},
		ManifestAnnotations: map[string]string{
			v1.AnnotationCreated: r.source.time.Format(time.RFC3339),
			v1.AnnotationTitle:   "capstan",
			v1.AnnotationVersion: tag,
			v1.AnnotationSource:  projectURL,
		},
	})
	if err != nil {
		return "", err
	}
	if err := store.Tag(ctx, manifest, tag); err != nil {
		return "", err
	}
	// Uploads in progress are no part of the layout.
	return manifest.Digest.String(), os.RemoveAll(filepath.Join(directory, "ingest"))
}
