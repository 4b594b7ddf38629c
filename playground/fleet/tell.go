package fleet

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// logLines of the hub are shown when something failed.
const logLines = 40

// TellWhere prints where the kubeconfigs are and how to look.
func (f *Fleet) TellWhere() {
	say(f.out, "\nKubeconfigs (administrators' but for alice and mallory) and the hub's log are in %s", f.files.path(""))
	say(f.out, "The dashboard, open to this machine: %s", f.dashboardURL)
	say(f.out, "Look, from another terminal:")
	f.tell(
		f.kubectl(managementName)+" get clusterconnections,pipelines,promotions.capstan.dev -A",
		f.kubectl(managementName)+" -n "+appsNamespace+" get pipelines "+shop+" -o yaml",
		f.kubectl(managementName)+" -n "+appsNamespace+" get events",
		f.kubectl(prod)+" get helmreleases -A",
		f.kubectl(managementName)+" -n "+fleetNamespace+" get machinedeployments -o yaml",
		f.kubectl(managementName)+" -n "+fleetNamespace+" get awsmachines -L "+stateLabel,
		"curl -s "+f.metricsURL+" | grep ^capstan_",
		"tail -f "+f.files.path(hubLogName),
		"curl -s --cacert "+f.files.path(giteaCAName)+" '"+f.giteaAPI("/pulls?state=all")+`' | grep -o '"title":"[^"]*"'`,
	)
}

// TellWhat prints what to try on the fleet as the story left it.
func (f *Fleet) TellWhat(ctx context.Context) {
	say(f.out, "\nThe fleet stays up until Ctrl-C. Try a new revision in dev, and watch it travel:")
	f.tell(
		f.kubectl(dev)+" -n "+shop+` patch helmrelease `+shop+` --type=merge -p '{"spec":{"chart":{"spec":{"version":"2.0.0"}}}}'`,
		f.kubectl(managementName)+" -n "+appsNamespace+" get promotions.capstan.dev -w",
	)
	say(f.out, "Or of %s: commit it to the repository, and merge pull request N (Gitea has no frontend here):", billing)
	f.tell(
		// The setting stays with the clone, wherever that is.
		"git clone -c http.sslCAInfo="+filepath.Join(f.files.dir, giteaCAName)+" "+f.withPassword(f.repository.URL()),
		"curl -s --cacert "+f.files.path(giteaCAName)+` --json '{"Do":"merge"}' '`+f.giteaAPI("/pulls/N/merge")+"'",
	)
	every, err := f.promotions(ctx)
	if err != nil {
		return
	}
	for _, p := range every {
		if p.Status.Phase == capstanv1.PhaseAwaitingApproval {
			say(f.out, "Approve %s %s into %s (as mallory it is refused):", p.Spec.Pipeline.Name, p.Spec.Revision, p.Spec.Environment)
			f.tell(f.approveCommand(p.Name))
		}
	}
}

// giteaAPI is a URL of Gitea's API for the repository, with the administrator's
// password of this playground.
func (f *Fleet) giteaAPI(path string) string {
	return f.withPassword(f.gitea.URL() + "/api/v1/repos/" + f.repository.Owner + "/" + f.repository.Name + path)
}

func (f *Fleet) withPassword(url string) string {
	admin := f.gitea.Admin()
	return strings.Replace(url, "://", "://"+admin.Username+":"+admin.Password+"@", 1)
}

func (f *Fleet) tell(commands ...string) {
	for _, c := range commands {
		say(f.out, "  %s", c)
	}
}

// show runs a kubectl command as people would, and prints it with its answer.
func (f *Fleet) show(ctx context.Context, args ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), aMoment)
	defer cancel()
	command := f.kubectl(managementName) + " " + strings.Join(args, " ")
	say(f.out, "\n$ %s", command)
	args = append([]string{"--kubeconfig", filepath.Join(f.files.dir, managementName+kubeconfigEnds)}, args...)
	answer, err := exec.CommandContext(ctx, kubectlPath(), args...).CombinedOutput()
	say(f.out, "%s", strings.TrimSpace(string(answer)))
	if err != nil {
		say(f.out, "%v", err)
	}
}

// tellLog prints the end of the hub's log.
func (f *Fleet) tellLog() {
	tail := f.files.logTail(logLines)
	if len(tail) == 0 {
		return
	}
	say(f.out, "\nThe end of the hub's log:")
	f.tell(tail...)
}

func (f *Fleet) approveCommand(promotion string) string {
	return f.kubectl(alice) + " -n " + appsNamespace + " patch promotions.capstan.dev " + promotion +
		" --type=merge -p '" + approvalPatch(alice) + "'"
}

// kubectl as one would type it: the one that was built with the control planes.
func (f *Fleet) kubectl(name string) string {
	return typed(kubectlPath()) + " --kubeconfig " + f.files.path(name+kubeconfigEnds)
}

func kubectlPath() string { return filepath.Join(controlplane.Root(), "bin", "envtest", "kubectl") }
