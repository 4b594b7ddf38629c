package fleet

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// logLines of the hub are printed after a failure.
const logLines = 40

// PrintAccess prints where the kubeconfigs are and which commands show the fleet.
func (f *Fleet) PrintAccess() {
	kubectl := kubectlFor(f.files)
	say(f.out, "\nKubeconfigs (administrators' except for alice and mallory) and the hub's log are in %s", f.files.path(""))
	say(f.out, "The dashboard, for this machine only: %s", f.hub.dashboard)
	say(f.out, "The promotion hook (/promotion and /approval; HOOK in the docs): %s", f.hub.hook)
	say(f.out, "Commands for another terminal:")
	printCommands(f.out,
		kubectl(managementName)+" get clusterconnections,pipelines,promotions.capstan.dev -A",
		kubectl(managementName)+" -n "+appsNamespace+" get pipelines "+shop+" -o yaml",
		kubectl(managementName)+" -n "+appsNamespace+" get events",
		kubectl(prod)+" get helmreleases -A",
		kubectl(managementName)+" -n "+fleetNamespace+" get machinedeployments -o yaml",
		kubectl(managementName)+" -n "+fleetNamespace+" get awsmachines -L "+stateLabel,
		"curl -s "+f.hub.metrics+" | grep ^capstan_",
		"tail -f "+f.files.path(hubLogName),
	)
}

// PrintNext prints what a user can try on the fleet after the story.
func (f *Fleet) PrintNext(ctx context.Context) {
	kubectl := kubectlFor(f.files)
	say(f.out, "\nThe fleet stays up until Ctrl-C. Try a new revision in dev, and watch its promotions:")
	printCommands(f.out,
		kubectl(dev)+" -n "+shop+` patch helmrelease `+shop+` --type=merge -p '{"spec":{"chart":{"spec":{"version":"2.0.0"}}}}'`,
		kubectl(managementName)+" -n "+appsNamespace+" get promotions.capstan.dev -w",
	)
	say(f.out, "Roll prod of %s back, as alice, and see the outcome of her requests:", shop)
	printCommands(f.out,
		requestCommand(f.files, shop, prod),
		kubectl(managementName)+" -n "+appsNamespace+" get promotionrequests -o wide",
	)
	if f.billing.started() {
		say(f.out, "Or of %s: commit it to the repository, and merge pull request N (Gitea has no frontend here):", billing)
		printCommands(f.out,
			// The setting stays with the clone, in any directory.
			"git clone -c http.sslCAInfo="+filepath.Join(f.files.dir, giteaCAName)+" "+f.billing.withPassword(f.billing.repository.URL()),
			"curl -s --cacert "+f.files.path(giteaCAName)+` --json '{"Do":"merge"}' '`+f.billing.apiURL("/pulls/N/merge")+"'",
		)
	}
	every, err := f.promotions().list(ctx)
	if err != nil {
		return
	}
	for _, p := range every {
		if p.Status.Phase == capstanv1.PhaseAwaitingApproval {
			say(f.out, "Approve %s %s into %s (mallory's approval is refused):", p.Spec.Pipeline.Name, p.Spec.Revision, p.Spec.Environment)
			printCommands(f.out, approveCommand(f.files, p.Name))
		}
	}
}

func printCommands(out io.Writer, commands ...string) {
	for _, c := range commands {
		say(out, "  %s", c)
	}
}

// showCommand runs a kubectl command as a user does, and prints it with its output.
func showCommand(ctx context.Context, out io.Writer, files *files, args ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), aMoment)
	defer cancel()
	say(out, "\n$ %s", kubectlFor(files)(managementName)+" "+strings.Join(args, " "))
	args = append([]string{"--kubeconfig", filepath.Join(files.dir, managementName+kubeconfigEnds)}, args...)
	answer, err := exec.CommandContext(ctx, kubectlPath(), args...).CombinedOutput()
	say(out, "%s", strings.TrimSpace(string(answer)))
	if err != nil {
		say(out, "%v", err)
	}
}

// printLog prints the end of the hub's log.
func printLog(out io.Writer, files *files) {
	tail := files.logTail(logLines)
	if len(tail) == 0 {
		return
	}
	say(out, "\nThe end of the hub's log:")
	printCommands(out, tail...)
}

func approveCommand(files *files, promotion string) string {
	return kubectlFor(files)(alice) + " -n " + appsNamespace + " patch promotions.capstan.dev " + promotion +
		" --type=merge -p '" + approvalPatch(alice) + "'"
}

// kubectlFor is kubectl with the kubeconfig of a name, as a user types it.
func kubectlFor(files *files) func(name string) string {
	return func(name string) string {
		return typed(kubectlPath()) + " --kubeconfig " + files.path(name+kubeconfigEnds)
	}
}

func kubectlPath() string { return filepath.Join(controlplane.Root(), "bin", "envtest", "kubectl") }
