package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-hub/capstan/playground/controlplane"
)

// Namespaces of the story.
const (
	hubNamespace     = "capstan-system"
	fleetNamespace   = "fleet"
	appsNamespace    = "apps"
	hubUser          = "system:serviceaccount:" + hubNamespace + ":capstan-hub"
	renderingTimeout = time.Minute
)

// programs is the folder into which build builds.
var programs string

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(2 * time.Minute)
	os.Exit(func() int {
		var err error
		if programs, err = os.MkdirTemp("", "capstan-programs-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(programs) }()
		return m.Run()
	}())
}

// path in the repository.
func path(parts ...string) string {
	return filepath.Join(append([]string{controlplane.Root()}, parts...)...)
}

// tool runs a program of bin and returns its output.
func tool(ctx context.Context, stdin []byte, env []string, name string, args ...string) (string, string, error) {
	ctx, cancel := context.WithTimeout(ctx, renderingTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, path("bin", name), args...)
	command.Env = append(os.Environ(), env...)
	command.Stdin = bytes.NewReader(stdin)
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	if err := command.Run(); err != nil {
		return out.String(), complaints.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, complaints.String())
	}
	return out.String(), complaints.String(), nil
}

// chart renders the chart as `helm template` does.
func chart(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, _, err := tool(t.Context(), nil, []string{"HOME=" + t.TempDir()}, "helm",
		append([]string{"template", "capstan", path("config", "chart"), "--namespace", hubNamespace}, args...)...)
	return out, err
}

// kustomization renders a folder of config.
func kustomization(t *testing.T, dir string) string {
	t.Helper()
	out, _, err := tool(t.Context(), nil, []string{"HOME=" + t.TempDir()}, "envtest/kubectl", "kustomize", path("config", dir))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return out
}

// objects of YAML, by kind, namespace and name.
func objects(t *testing.T, texts ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	const buffer = 4 << 10
	all := map[string]*unstructured.Unstructured{}
	for _, text := range texts {
		for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), buffer); ; {
			u := &unstructured.Unstructured{}
			err := decoder.Decode(&u.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			g.Expect(err).NotTo(HaveOccurred())
			if len(u.Object) == 0 {
				continue
			}
			key := strings.TrimPrefix(u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName(), "/")
			g.Expect(all).NotTo(HaveKey(key), "it is there twice")
			all[key] = u
		}
	}
	return all
}
