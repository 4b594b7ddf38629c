package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/platforms"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	. "github.com/onsi/gomega"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"sigs.k8s.io/yaml"
)

const (
	testVersion = "v0.0.1-test.1"
	// testTimeout is for compiling Capstan with an empty cache on a busy machine of two cores.
	testTimeout = 30 * time.Minute
)

// here is the platform for which the tests build.
func here() string { return "linux/" + runtime.GOARCH }

// runMake runs a target in the root of the repository.
func runMake(ctx context.Context, g Gomega, arguments ...string) {
	command := exec.CommandContext(ctx, "make", append([]string{"-C", "../..", "VERSION=" + testVersion, "PLATFORMS=" + here(), "CLI_PLATFORMS=" + here()}, arguments...)...)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	g.Expect(command.Run()).To(Succeed(), "%s", command)
}

// Two builds in two directories give the same archive, and each file of a release is what its
// consumers read: containerd, Docker, Helm, a registry and krew.
func TestTheRelease(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	server := httptest.NewServer(registry.New())
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	repository := host + "/team/capstan"
	reference := repository + ":" + testVersion

	first, dist := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "release")
	runMake(ctx, g, "image", "IMAGE="+repository, "DIST="+first)
	runMake(ctx, g, "release", "IMAGE="+repository, "DIST="+dist)
	for _, file := range []string{"capstan-image.tar", "capa-annotator-image.tar"} {
		g.Expect(read(g, first, file)).To(Equal(read(g, dist, file)), "%s is not reproducible", file)
	}
	readRelease(t, dist, reference)
}

// readRelease reads each file of a release as its consumer does.
func readRelease(t *testing.T, dist, reference string) {
	g := NewWithT(t)
	var artifacts []built
	g.Expect(json.Unmarshal(read(g, dist, imagesFile), &artifacts)).To(Succeed())
	g.Expect(artifacts).To(HaveLen(3))
	hub, chart := artifacts[0], artifacts[2]
	g.Expect(hub.Name).To(Equal(reference))

	t.Run("containerd", func(t *testing.T) { containerdImports(t, filepath.Join(dist, hub.Archive), hub) })
	t.Run("docker", func(t *testing.T) { dockerRuns(t, filepath.Join(dist, hub.Archive), "capstan", reference) })
	t.Run("annotator", func(t *testing.T) {
		dockerRuns(t, filepath.Join(dist, artifacts[1].Archive), "capa-annotator", artifacts[1].Name)
	})
	t.Run("manifests", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(string(read(g, dist, "install.yaml"))).To(ContainSubstring("image: " + reference + "@" + hub.Digest + "\n"))
		g.Expect(string(read(g, dist, "capa-annotator.yaml"))).To(ContainSubstring("image: " + artifacts[1].Name + "@" + artifacts[1].Digest + "\n"))
		g.Expect(string(read(g, dist, "cluster-secrets.yaml"))).To(ContainSubstring("kind: RoleBinding"))
	})
	t.Run("registry", func(t *testing.T) { registryHas(t, dist, artifacts) })
	t.Run("helm", func(t *testing.T) { helmPulls(t, chart, reference) })
	t.Run("cli", func(t *testing.T) { cliInstalls(t, dist) })
	t.Run("promotion", func(t *testing.T) { hubPromotes(t, dist) })
	t.Run("bill", func(t *testing.T) {
		g := NewWithT(t)
		var bom cdx.BOM
		file := "capstan_" + testVersion + "_" + strings.ReplaceAll(here(), "/", "_") + ".cdx.json"
		g.Expect(cdx.NewBOMDecoder(bytes.NewReader(read(g, dist, file)), cdx.BOMFileFormatJSON).Decode(&bom)).To(Succeed())
		g.Expect(bom.Metadata.Component.Version).To(Equal(testVersion))
		versions := map[string]string{}
		for _, component := range *bom.Components {
			versions[component.Name] = component.Version
		}
		g.Expect(versions).To(HaveKeyWithValue("github.com/capstan-hub/capstan/api", testVersion))
		g.Expect(versions).To(HaveKeyWithValue("k8s.io/client-go", MatchRegexp(`^v0\.\d+\.\d+$`)))
		g.Expect(versions).To(HaveKeyWithValue("std", strings.TrimPrefix(runtime.Version(), "go")))
	})
	t.Run("checksums", func(t *testing.T) {
		g := NewWithT(t)
		command := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", checksumsFile)
		command.Dir = dist
		output, err := command.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(output))
		files, err := os.ReadDir(dist)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(strings.Count(string(output), ": OK\n")).To(Equal(len(files) - 1))
	})
}

// containerdImports reads an archive with the code of `ctr images import`, which kind calls with
// --all-platforms: all blobs must be there.
func containerdImports(t *testing.T, path string, want built) {
	g := NewWithT(t)
	store, err := local.NewStore(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	file, err := os.Open(path)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = file.Close() }()
	top, err := archive.ImportIndex(t.Context(), store, file)
	g.Expect(err).NotTo(HaveOccurred())
	children, err := images.Children(t.Context(), store, top)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(children).To(HaveLen(1))
	image := children[0]
	g.Expect(image.Annotations).To(HaveKeyWithValue(images.AnnotationImageName, want.Name))
	g.Expect(image.Annotations).To(HaveKeyWithValue(ocispec.AnnotationRefName, testVersion))
	g.Expect(image.Digest.String()).To(Equal(want.Digest))

	blobs := 0
	g.Expect(images.Walk(t.Context(), images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		blobs++
		if _, err := store.Info(ctx, d.Digest); err != nil {
			return nil, err
		}
		return images.Children(ctx, store, d)
	}), image)).To(Succeed())
	g.Expect(blobs).To(Equal(5), "an index, a manifest, a configuration and two layers")
	g.Expect(images.Platforms(t.Context(), store, image)).To(HaveLen(1))
	manifest, err := images.Manifest(t.Context(), store, image, platforms.Only(platforms.MustParse(here())))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manifest.Annotations).To(HaveKeyWithValue(ocispec.AnnotationVersion, testVersion))
}

// dockerRuns reads an archive as an older Docker does, by manifest.json, unpacks the image and
// runs its binary in it as its user.
func dockerRuns(t *testing.T, path, program, reference string) {
	g := NewWithT(t)
	tag, err := name.NewTag(reference)
	g.Expect(err).NotTo(HaveOccurred())
	image, err := tarball.ImageFromPath(path, &tag)
	g.Expect(err).NotTo(HaveOccurred())
	file, err := image.ConfigFile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(file.OS + "/" + file.Architecture).To(Equal(here()))
	g.Expect(file.Config.User).To(Equal("65532:65532"))
	g.Expect(file.Config.Entrypoint).To(Equal([]string{"/" + program}))
	g.Expect(file.Config.Cmd).To(BeEmpty())
	g.Expect(file.Config.Labels).To(HaveKeyWithValue(ocispec.AnnotationTitle, program))
	g.Expect(file.Config.Labels).To(HaveKeyWithValue(ocispec.AnnotationVersion, testVersion))
	g.Expect(file.Config.Labels).To(HaveKeyWithValue(ocispec.AnnotationLicenses, "Apache-2.0"))

	root := unpack(t, g, image)
	certificates := read(g, root, certificatesFile)
	g.Expect(x509.NewCertPool().AppendCertsFromPEM(certificates)).To(BeTrue())
	names := map[string]bool{}
	for block, rest := pem.Decode(certificates); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		g.Expect(err).NotTo(HaveOccurred())
		names[certificate.Subject.CommonName] = true
	}
	g.Expect(len(names)).To(BeNumerically(">", 80))
	g.Expect(names).To(And(HaveKey("ISRG Root X1"), HaveKey("Amazon Root CA 1")))
	g.Expect(string(read(g, root, "etc/passwd"))).To(ContainSubstring("nonroot:x:65532:65532:"))
	info, err := os.Stat(filepath.Join(root, "tmp"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode()).To(Equal(os.ModeDir | os.ModeSticky | os.FileMode(0o777)))
	if program == "capstan" {
		g.Expect(bytes.Contains(read(g, root, program), []byte("Europe/Kyiv"))).To(BeTrue(), "the binary has no time zones")
	}
	g.Expect(execute(t, root, program)).To(ContainSubstring(testVersion))
}

// unpack writes the files of an image below a directory.
func unpack(t *testing.T, g Gomega, image v1.Image) string {
	root := t.TempDir()
	g.Expect(os.Chmod(root, 0o755)).To(Succeed())
	content := mutate.Extract(image)
	defer func() { _ = content.Close() }()
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(filepath.IsLocal(header.Name)).To(BeTrue(), header.Name)
		g.Expect(header.Uid + header.Gid).To(BeZero())
		path := filepath.Join(root, header.Name)
		if header.Typeflag == tar.TypeDir {
			g.Expect(os.MkdirAll(path, 0o700)).To(Succeed())
		} else {
			file, err := os.Create(path)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = io.Copy(file, reader)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(file.Close()).To(Succeed())
		}
		g.Expect(os.Chmod(path, header.FileInfo().Mode())).To(Succeed())
	}
}

// execute prints the version with nothing but the files of the image, as its user. Without the
// rights for that, the binary runs where it is.
func execute(t *testing.T, root, program string) (string, error) {
	arguments := []string{"version"}
	if program == "capa-annotator" {
		arguments = []string{"--version"}
	}
	command := exec.CommandContext(t.Context(), filepath.Join(root, program), arguments...)
	if os.Geteuid() == 0 {
		command.Path, command.Dir, command.Env = "/"+program, "/", []string{"PATH=/"}
		command.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: userID, Gid: userID}}
	}
	output, err := command.CombinedOutput()
	return string(output), err
}

// hubPromotes runs the end-to-end test that promotes with the hub of the image.
func hubPromotes(t *testing.T, dist string) {
	g := NewWithT(t)
	command := exec.CommandContext(t.Context(), "make", "-C", "../..", "e2e", "FLAGS=-run TestTheImage")
	command.Env = append(os.Environ(), "CAPSTAN_RELEASE="+dist)
	output, err := command.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(output))
	g.Expect(string(output)).To(ContainSubstring("--- PASS: TestTheImage"))
}

// registryHas pushes a release and reads it with another library than the one that pushed it.
func registryHas(t *testing.T, dist string, artifacts []built) {
	g := NewWithT(t)
	g.Expect(run(t.Context(), []string{"push", "-out", dist, "-insecure"}, t.Output())).To(Succeed())
	for _, artifact := range artifacts {
		tag, err := name.NewTag(artifact.Name, name.Insecure)
		g.Expect(err).NotTo(HaveOccurred())
		descriptor, err := remote.Get(tag, remote.WithContext(t.Context()))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(descriptor.Digest.String()).To(Equal(artifact.Digest))
	}
}

// helmPulls pulls the chart and renders it: its image is that of the release by default.
func helmPulls(t *testing.T, chart built, reference string) {
	g := NewWithT(t)
	directory := t.TempDir()
	repository, version := cutTag(chart.Name)
	helm := func(arguments ...string) string {
		command := exec.CommandContext(t.Context(), "../../bin/helm", arguments...)
		command.Env = append(os.Environ(), "HELM_CACHE_HOME="+directory, "HELM_CONFIG_HOME="+directory, "HELM_DATA_HOME="+directory)
		output, err := command.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(output))
		return string(output)
	}
	pulled := helm("pull", "oci://"+repository, "--version="+version, "--plain-http", "--destination="+directory)
	g.Expect(pulled).To(ContainSubstring(chart.Digest))
	rendered := helm("template", "capstan", filepath.Join(directory, "capstan-"+version+".tgz"))
	g.Expect(rendered).To(ContainSubstring(`image: "` + reference + `"`))
}

// cliInstalls does what krew does: it selects the archive by the platform, checks the sum and
// takes the files.
func cliInstalls(t *testing.T, dist string) {
	g := NewWithT(t)
	var plugin struct {
		Spec struct {
			Version   string
			Platforms []struct {
				Selector struct{ MatchLabels map[string]string }
				URI      string
				SHA256   string
				Bin      string
				Files    []struct{ From, To string }
			}
		}
	}
	g.Expect(yaml.UnmarshalStrict(withoutDescriptions(g, read(g, dist, krewFile)), &plugin)).To(Succeed())
	g.Expect(plugin.Spec.Version).To(Equal(testVersion))
	g.Expect(plugin.Spec.Platforms).To(HaveLen(1))
	p := plugin.Spec.Platforms[0]
	g.Expect(p.Selector.MatchLabels).To(Equal(map[string]string{"os": "linux", "arch": runtime.GOARCH}))
	g.Expect(p.URI).To(HavePrefix(projectURL + "/releases/download/" + testVersion + "/"))
	archive := filepath.Base(p.URI)
	g.Expect(sha256Of(filepath.Join(dist, archive))).To(Equal(p.SHA256))

	compressed, err := gzip.NewReader(bytes.NewReader(read(g, dist, archive)))
	g.Expect(err).NotTo(HaveOccurred())
	files := map[string]int64{}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		g.Expect(err).NotTo(HaveOccurred())
		files[header.Name] = header.Mode
	}
	g.Expect(files).To(HaveKeyWithValue(p.Bin, int64(0o755)))
	for _, file := range p.Files {
		g.Expect(files).To(HaveKey(file.From))
	}
	g.Expect(files).To(HaveLen(len(p.Files)))
}

// withoutDescriptions keeps the part of a krew manifest that krew reads to install.
func withoutDescriptions(g Gomega, text []byte) []byte {
	var plugin map[string]any
	g.Expect(yaml.Unmarshal(text, &plugin)).To(Succeed())
	spec, isMap := plugin["spec"].(map[string]any)
	g.Expect(isMap).To(BeTrue())
	out, err := yaml.Marshal(map[string]any{"spec": map[string]any{"version": spec["version"], "platforms": spec["platforms"]}})
	g.Expect(err).NotTo(HaveOccurred())
	return out
}

func read(g Gomega, directory, file string) []byte {
	content, err := os.ReadFile(filepath.Join(directory, file))
	g.Expect(err).NotTo(HaveOccurred())
	return content
}
