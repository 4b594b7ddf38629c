package firstrun

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	. "github.com/onsi/gomega"
)

const (
	provideControlPlane = "hack/controlplane/provide.sh"
	builtMark           = "built from modules\n"
	refused             = `echo "dial tcp: connection refused" >&2; exit 2`
	noDownload          = "CAPSTAN_DOWNLOAD=no"
)

// withControlPlane is a repository that needs Kubernetes 1.36 and etcd 3.6.
func withControlPlane(t *testing.T, setupEnvtest string) *repository {
	t.Helper()
	r := newRepository(t, provideControlPlane)
	r.write("hack/controlplane/go.mod", "module x\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v3.6.8 // indirect\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n", textMode)
	r.write("hack/controlplane/go.sum", "", textMode)
	r.program("hack/controlplane/build.sh", `. ../compile.sh
echo "built from modules"
echo build >>../../builds
for p in etcd kube-apiserver kubectl; do rm -f "$1/$p"; echo "#!/bin/sh" >"$1/$p"; chmod +x "$1/$p"; done
stamp_of go.mod go.sum build.sh >"$1/.stamp"`)
	r.program("hack/tool.sh", `echo "$*" >>"$(dirname "$0")/../tools"`)
	r.program("bin/setup-envtest", `echo "$*" >>"$(dirname "$0")/../downloads"
`+setupEnvtest)
	return r
}

// assets writes a control plane's programs, which print versions as the real ones do.
func assets(r *repository, dir, kube, etcd string) string {
	r.t.Helper()
	r.program(filepath.Join(dir, "kube-apiserver"), "echo Kubernetes v"+kube)
	r.program(filepath.Join(dir, "kubectl"), "echo Client Version: v"+kube+"; echo Kustomize Version: v5.8.1")
	r.program(filepath.Join(dir, "etcd"), "echo etcd Version: "+etcd+"; echo Git SHA: 1234567; echo Go Version: go1.26.8")
	resolved, err := filepath.EvalSymlinks(dir)
	NewWithT(r.t).Expect(err).NotTo(HaveOccurred())
	return resolved
}

func TestAssetsOfTheUserAreUsed(t *testing.T) {
	g := NewWithT(t)
	r := withControlPlane(t, refused)
	dir := assets(r, t.TempDir(), "1.36.1", "3.6.5")
	out := r.run(provideControlPlane, nil, dir)
	g.Expect(out).To(ContainSubstring(dir))
	for _, program := range []string{"etcd", "kube-apiserver", "kubectl"} {
		g.Expect(r.linkOf("bin/envtest/" + program)).To(Equal(filepath.Join(dir, program)))
	}
	g.Expect(r.read("builds") + r.read("downloads")).To(BeEmpty())

	g.Expect(r.run(provideControlPlane, nil, dir)).To(BeEmpty(), "the second run has nothing to do")
	g.Expect(r.run(provideControlPlane, nil)).To(BeEmpty(), "what an earlier run chose is kept")
	g.Expect(r.run(provideControlPlane, nil, r.path("bin/envtest"))).To(BeEmpty(), "bin/envtest is no link to itself")

	g.Expect(os.Remove(filepath.Join(dir, "kubectl"))).To(Succeed())
	g.Expect(r.run(provideControlPlane, []string{noDownload}, dir)).To(And(
		ContainSubstring("is not used: it has no kubectl"), HaveSuffix(builtMark)))
}

func TestUnusableAssetsAreNamedAndNotUsed(t *testing.T) {
	for name, c := range map[string]struct{ kube, etcd, want string }{
		"an older Kubernetes":  {"1.35.9", "3.6.8", "kube-apiserver reports version 1.35.9, and 1.36.x is needed"},
		"a newer Kubernetes":   {"1.37.0", "3.6.8", "kube-apiserver reports version 1.37.0, and 1.36.x is needed"},
		"a similar number":     {"1.3.6", "3.6.8", "kube-apiserver reports version 1.3.6, and 1.36.x is needed"},
		"an older etcd":        {"1.36.3", "3.5.21", "etcd reports version 3.5.21, and 3.6.x is needed"},
		"no version":           {"; exit 1", "3.6.8", "kube-apiserver reports version (none), and 1.36.x is needed"},
		"a program that fails": {"1.36.3", "; exit 1", "etcd reports version (none), and 3.6.x is needed"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := withControlPlane(t, refused)
			dir := assets(r, t.TempDir(), c.kube, c.etcd)
			g.Expect(r.run(provideControlPlane, []string{noDownload}, dir)).To(And(
				ContainSubstring("KUBEBUILDER_ASSETS="+dir+" is not used: its "+c.want), HaveSuffix(builtMark)))
			g.Expect(r.read("downloads")).To(BeEmpty())
		})
	}
	t.Run("a directory that does not exist", func(t *testing.T) {
		r := withControlPlane(t, refused)
		NewWithT(t).Expect(r.run(provideControlPlane, []string{noDownload}, "/does/not/exist")).To(And(
			ContainSubstring("there is no such directory"), HaveSuffix(builtMark)))
	})
}

func TestABuildIsKeptAndAssetsComeFirst(t *testing.T) {
	g := NewWithT(t)
	r := withControlPlane(t, refused)
	g.Expect(r.run(provideControlPlane, []string{noDownload})).To(Equal(builtMark))
	g.Expect(r.run(provideControlPlane, []string{noDownload})).To(BeEmpty())
	dir := assets(r, t.TempDir(), "1.36.0", "3.6.0")
	g.Expect(r.run(provideControlPlane, nil, dir)).To(ContainSubstring(dir))
	g.Expect(r.read("builds")).To(Equal("build\n"))
}

func TestTheStoreOfSetupEnvtestIsUsed(t *testing.T) {
	platform := runtime.GOOS + "-" + runtime.GOARCH
	g := NewWithT(t)
	r := withControlPlane(t, refused)
	data := t.TempDir()
	at := func(version string) string {
		return filepath.Join(data, "kubebuilder-envtest", "k8s", version+"-"+platform)
	}
	if runtime.GOOS == "darwin" {
		t.Skip("on macOS the store does not follow XDG_DATA_HOME")
	}
	assets(r, at("1.35.0"), "1.35.0", "3.6.8")
	assets(r, at("1.36.2"), "1.36.2", "3.6.8")
	newest := assets(r, at("1.36.10"), "1.36.10", "3.6.8")
	assets(r, filepath.Join(data, "kubebuilder-envtest", "k8s", "1.36.11-plan9-mips"), "1.36.11", "3.6.8")
	g.Expect(r.run(provideControlPlane, []string{"XDG_DATA_HOME=" + data})).To(ContainSubstring(newest))
	g.Expect(r.linkOf("bin/envtest/etcd")).To(Equal(filepath.Join(newest, "etcd")))
	g.Expect(r.read("downloads") + r.read("builds")).To(BeEmpty())
}

func TestADownloadIsUsed(t *testing.T) {
	g := NewWithT(t)
	r := withControlPlane(t, `case $1 in use) echo "`+"$DOWNLOADED"+`" ;; esac`)
	dir := assets(r, t.TempDir(), "1.36.2", "3.6.8")
	g.Expect(r.run(provideControlPlane, []string{"DOWNLOADED=" + dir})).To(ContainSubstring(dir))
	g.Expect(r.linkOf("bin/envtest/kube-apiserver")).To(Equal(filepath.Join(dir, "kube-apiserver")))
	g.Expect(r.read("tools")).To(ContainSubstring("setup-envtest"))
	g.Expect(r.read("downloads")).To(Equal("list 1.36.x\nuse --print path 1.36.x\n"))
	g.Expect(r.read("builds")).To(BeEmpty())
}

func TestAFailedDownloadIsTriedOnce(t *testing.T) {
	for name, c := range map[string]struct{ setupEnvtest, want, calls string }{
		"a refused index":   {refused, "connection refused", "list 1.36.x\n"},
		"a refused archive": {`[ "$1" = list ] || { ` + refused + `; }`, "connection refused", "list 1.36.x\nuse --print path 1.36.x\n"},
		"a wrong version":   {`[ "$1" = list ] || echo "$DOWNLOADED"`, "kube-apiserver reports version 1.34.0", "list 1.36.x\nuse --print path 1.36.x\n"},
		"no directory":      {`:`, "setup-envtest printed no directory", "list 1.36.x\nuse --print path 1.36.x\n"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := withControlPlane(t, c.setupEnvtest)
			variables := []string{"DOWNLOADED=" + assets(r, t.TempDir(), "1.34.0", "3.6.8")}
			g.Expect(r.run(provideControlPlane, variables)).To(And(
				ContainSubstring("no download ("), ContainSubstring(c.want), HaveSuffix(builtMark)))
			g.Expect(r.read("downloads")).To(Equal(c.calls))

			// The build is gone: it is made again, without another try.
			g.Expect(os.Remove(r.path("bin/envtest/etcd"))).To(Succeed())
			g.Expect(r.run(provideControlPlane, variables)).To(Equal(builtMark))
			g.Expect(r.read("downloads")).To(Equal(c.calls))
		})
	}
	t.Run("setup-envtest that cannot be built", func(t *testing.T) {
		g := NewWithT(t)
		r := withControlPlane(t, refused)
		r.program("hack/tool.sh", "exit 1")
		g.Expect(r.run(provideControlPlane, nil)).To(And(
			ContainSubstring("setup-envtest cannot be built"), HaveSuffix(builtMark)))
	})
}

// Without a network, setup-envtest is not compiled, only to be refused.
func TestSetupEnvtestIsNotCompiledInVain(t *testing.T) {
	for name, c := range map[string]struct {
		curl, want, tools string
	}{
		"no network": {"echo 'curl: (7) Failed to connect' >&2; exit 7", "no download (curl: (7) Failed to connect); building instead", ""},
		"a network":  {"true", "no download (dial tcp: connection refused); building instead", "envtest sigs.k8s.io/controller-runtime/tools/setup-envtest\n"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := withControlPlane(t, refused)
			g.Expect(os.Remove(r.path("bin/setup-envtest"))).To(Succeed())
			r.program("hack/tool.sh", `echo "$*" >>"$(dirname "$0")/../tools"; echo '`+refused+`' >../../bin/setup-envtest; chmod +x ../../bin/setup-envtest`)
			module := "sigs.k8s.io/controller-runtime/tools/setup-envtest"
			r.write("hack/envtest/go.mod", "module x\n\nrequire "+module+" v0.1.0\n\nreplace "+module+" => ./local\n", textMode)
			r.write("hack/envtest/local/go.mod", "module "+module+"\n", textMode)
			r.write("hack/envtest/local/remote/client.go", "package remote\n\nvar DefaultIndexURL = \"https://index.example/\"\n", textMode)
			r.program("fake/curl", `echo "$*" >>"`+r.path("requests")+`"; `+c.curl)
			path := "PATH=" + r.path("fake") + string(os.PathListSeparator) + os.Getenv("PATH")
			out := r.run(provideControlPlane, []string{path})
			g.Expect(out).To(And(ContainSubstring(c.want), HaveSuffix(builtMark)))
			g.Expect(r.read("requests")).To(ContainSubstring("https://index.example/"))
			g.Expect(r.read("tools")).To(Equal(c.tools))
		})
	}
}
