package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/capstan-hub/capstan/playground/git"
	"github.com/capstan-hub/capstan/playground/ports"
	"github.com/capstan-hub/capstan/playground/process"
)

const (
	// releaseVariable is the environment variable with the directory of a release.
	releaseVariable = "CAPSTAN_RELEASE"
	// imageUser is the user of the image.
	imageUser = 65532
)

// TestTheImage runs the hub of a release's archive, without an engine: with only the files of the
// image, as its user, with the arguments, the environment and the volumes of the Deployment in
// install.yaml, and as its ServiceAccount. install.yaml and the rights for namespaces are applied as
// docs/releasing.md says. The hub promotes a new chart version from dev to prod.
func TestTheImage(t *testing.T) {
	release := os.Getenv(releaseVariable)
	if release == "" {
		t.Skip("run by `make release-test`, which makes the image")
	}
	w := begin(t, func(w *world) { w.installRelease(release) }, dev, prod)
	w.createRepository("fleet", map[string]string{
		manifestPath(dev, kiosk): kioskManifest(dev, firstRevision), manifestPath(prod, kiosk): kioskManifest(prod, firstRevision),
	})
	w.startFlux()
	w.g.Expect(w.admin.Create(w.Context(), w.pipeline(kiosk, helmRelease(kiosk), dev, prod))).To(Succeed())
	t.Cleanup(w.endHub)
	w.startImage(release)
	w.hubReady()
	for _, env := range []string{dev, prod} {
		w.g.Eventually(func() error { return w.agreed(kiosk, env, firstRevision) }).Should(Succeed())
	}

	const revision = "1.1.0"
	w.commitKiosk(dev, revision)
	p := expected{kiosk, prod, revision}
	pr := w.open(p)
	w.g.Expect(w.repository.Read(w.Context(), pr.Head.Ref, manifestPath(prod, kiosk))).To(Equal(kioskManifest(prod, revision)))
	w.g.Expect(w.repository.Merge(w.Context(), pr.Index)).To(Succeed())
	w.succeeded(p, pr.HTMLURL)
	w.g.Expect(w.repository.Read(w.Context(), git.Main, manifestPath(prod, kiosk))).To(Equal(kioskManifest(prod, revision)))
	w.stopHub()
}

// installRelease installs a release.
func (w *world) installRelease(release string) {
	w.Helper()
	w.kubectl("apply", "--server-side", "-f", filepath.Join(release, "install.yaml"))
	w.served()
	w.kubectl("apply", "-n", fleetNamespace, "-f", filepath.Join(release, "cluster-secrets.yaml"))
	w.kubectl("apply", "-n", appsNamespace, "-f", filepath.Join(release, "pipeline-secrets.yaml"))
}

// startImage starts the hub as the kubelet does. The addresses of its listeners are replaced, because
// other programs of this machine may have those of the Deployment, and the clusters and Gitea are on
// loopback. Without the rights of root the files of the image are not the root of the file system: the
// hub then gets a kubeconfig instead of the files of a pod.
func (w *world) startImage(release string) {
	w.Helper()
	image, err := tarball.ImageFromPath(filepath.Join(release, "capstan-image.tar"), nil)
	w.g.Expect(err).NotTo(HaveOccurred())
	file, err := image.ConfigFile()
	w.g.Expect(err).NotTo(HaveOccurred())
	root := w.unpack(image)
	spec := w.deployed(release)
	container := spec.Containers[0]
	command := append(append([]string{}, file.Config.Entrypoint...), file.Config.Cmd...)
	if len(container.Command) > 0 {
		command = append([]string{}, container.Command...)
	}
	w.g.Expect(command).NotTo(BeEmpty())
	command = append(command, container.Args...)
	environment := append([]string{}, file.Config.Env...)
	for _, variable := range container.Env {
		w.g.Expect(variable.ValueFrom).To(BeNil(), variable.Name)
		environment = append(environment, variable.Name+"="+variable.Value)
	}
	isRoot := os.Geteuid() == 0
	hub := &hubProcess{log: filepath.Join(w.dir, "image.log")}
	for _, mount := range container.VolumeMounts {
		at := filepath.Join(root, mount.MountPath)
		w.g.Expect(os.MkdirAll(at, 0o700)).To(Succeed())
		if isRoot {
			w.g.Expect(os.Chown(at, imageUser, imageUser)).To(Succeed())
		} else {
			command = replaced(command, mount.MountPath, at)
		}
		hub.clones = at
	}
	w.g.Expect(container.VolumeMounts).To(HaveLen(1), "the directory of clones, which is empty when the hub has stopped")

	addresses := 0
	for i, argument := range command {
		flag, _, _ := strings.Cut(argument, "=")
		if !strings.HasSuffix(flag, "-bind-address") && flag != "--health-addr" {
			continue
		}
		at, err := ports.Free()
		w.g.Expect(err).NotTo(HaveOccurred())
		command[i] = flag + "=" + at
		if flag == "--health-addr" {
			hub.health = at
		}
		addresses++
	}
	w.g.Expect(addresses).To(BeNumerically(">=", len(container.Ports)))
	w.g.Expect(hub.health).NotTo(BeEmpty())
	options := process.Options{Path: command[0], Args: append(command[1:], direct...), Env: environment, Dir: "/", Root: root, User: imageUser, Log: hub.log}
	if isRoot {
		options.Env = append(options.Env, w.podOf(spec.ServiceAccountName, root)...)
	} else {
		kubeconfig, err := w.management.UserKubeconfig("", "system:serviceaccount:"+systemNamespace+":"+spec.ServiceAccountName,
			"system:serviceaccounts", "system:serviceaccounts:"+systemNamespace)
		w.g.Expect(err).NotTo(HaveOccurred())
		options.Path, options.Dir, options.Root, options.User = filepath.Join(root, command[0]), root, "", 0
		options.Env = append(options.Env, "KUBECONFIG="+w.file("image.kubeconfig", kubeconfig), "RUNTIME_NAMESPACE="+systemNamespace)
	}
	hub.Process, err = process.Start(options)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.hub = hub
}

// replaced returns the command with another path.
func replaced(command []string, path, by string) []string {
	for i, argument := range command {
		if flag, value, _ := strings.Cut(argument, "="); value == path {
			command[i] = flag + "=" + by
		}
	}
	return command
}

// deployed returns the pods of the hub's Deployment in install.yaml.
func (w *world) deployed(release string) corev1.PodSpec {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(release, "install.yaml"))
	w.g.Expect(err).NotTo(HaveOccurred())
	const buffer = 4 << 10
	var found []corev1.PodSpec
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), buffer); ; {
		deployment := appsv1.Deployment{}
		err := decoder.Decode(&deployment)
		if errors.Is(err, io.EOF) {
			break
		}
		w.g.Expect(err).NotTo(HaveOccurred())
		if deployment.Kind == "Deployment" {
			found = append(found, deployment.Spec.Template.Spec)
		}
	}
	w.g.Expect(found).To(HaveLen(1))
	w.g.Expect(found[0].Containers).To(HaveLen(1))
	return found[0]
}

// podOf writes the files that the kubelet mounts into each pod of a ServiceAccount, and returns the
// variables of the API server's address.
func (w *world) podOf(account, root string) []string {
	w.Helper()
	const validity = 3600
	seconds := int64(validity)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: account}}
	w.g.Expect(w.admin.SubResource("token").Create(w.Context(), of, request)).To(Succeed())
	config := w.management.Config()
	mounted := filepath.Join(root, "var", "run", "secrets", "kubernetes.io", "serviceaccount")
	w.g.Expect(os.MkdirAll(mounted, 0o755)).To(Succeed())
	for name, text := range map[string]string{"token": request.Status.Token, "ca.crt": string(config.CAData), "namespace": systemNamespace} {
		w.g.Expect(os.WriteFile(filepath.Join(mounted, name), []byte(text), 0o644)).To(Succeed()) //nolint:gosec // The hub has another user.
	}
	server, err := url.Parse(config.Host)
	w.g.Expect(err).NotTo(HaveOccurred())
	host, port, err := net.SplitHostPort(server.Host)
	w.g.Expect(err).NotTo(HaveOccurred())
	return []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
}

// unpack writes the files of an image below a directory, which the user of the image can read.
func (w *world) unpack(image v1.Image) string {
	w.Helper()
	root := w.TempDir()
	w.g.Expect(os.Chmod(root, 0o755)).To(Succeed())
	content := mutate.Extract(image)
	defer func() { _ = content.Close() }()
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(filepath.IsLocal(header.Name)).To(BeTrue(), header.Name)
		path := filepath.Join(root, header.Name)
		if header.Typeflag == tar.TypeDir {
			w.g.Expect(os.MkdirAll(path, 0o700)).To(Succeed())
		} else {
			w.g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
			file, err := os.Create(path)
			w.g.Expect(err).NotTo(HaveOccurred())
			_, err = io.Copy(file, reader)
			w.g.Expect(err).NotTo(HaveOccurred())
			w.g.Expect(file.Close()).To(Succeed())
		}
		w.g.Expect(os.Chmod(path, header.FileInfo().Mode())).To(Succeed())
	}
}
