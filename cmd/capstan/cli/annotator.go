package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/hub/awsconfig"
)

// annotatorSettings are the flags of the annotator as given.
type annotatorSettings struct {
	on       bool
	auth     string
	families []string
	maxPods  string
	region   string
	// parsedAuth is auth, once it was checked.
	parsedAuth awsconfig.Auth
}

func defaultAnnotatorSettings(auth awsconfig.Auth) annotatorSettings {
	a := annotatorSettings{on: true, auth: string(auth), maxPods: string(capacity.PodsOff)}
	for _, f := range annotation.Families() {
		a.families = append(a.families, string(f))
	}
	return a
}

// register binds the flags that say how node groups are annotated.
func (a *annotatorSettings) register(f *pflag.FlagSet) {
	f.StringVar(&a.auth, "aws-auth", a.auth, "where credentials for AWS come from: irsa (a web identity alone, IAM Roles for Service Accounts) or default (the SDK's chain: environment, files, web identity, EKS Pod Identity, the node's role)")
	f.StringSliceVar(&a.families, "annotation-families", a.families, "which annotations are written: upstream (capacity.cluster-autoscaler.kubernetes.io/*, what cluster-autoscaler reads), openshift (machine.openshift.io/*) or both, with a comma between")
	f.StringVar(&a.maxPods, "max-pods", a.maxPods, "how the pods of a node are counted: off (not at all), eni (as the AWS VPC CNI does), prefix-delegation (as it does with prefixes), fixed or fixed=N; the annotation capstan.dev/max-pods of a Cluster counts instead")
	f.StringVar(&a.region, "default-region", a.region, "region of AWS, such as eu-west-1, where neither infrastructure, control plane nor annotation names one; when empty, such a node group is not annotated")
}

// regionName is how regions are named: eu-west-1, us-gov-east-1.
var regionName = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[0-9]+$`)

// apply checks the settings, all of them, and puts them into the hub's options.
func (a *annotatorSettings) apply(o *hub.Annotator) error {
	var errs []error
	refuse := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	var err error
	a.parsedAuth, err = awsconfig.ParseAuth(a.auth)
	refuse("aws-auth", err)
	o.Families, err = annotation.ParseFamilies(a.families)
	refuse("annotation-families", err)
	o.Pods, err = capacity.ParsePodsPolicy(a.maxPods)
	refuse("max-pods", err)
	if o.DefaultRegion = strings.TrimSpace(a.region); o.DefaultRegion != "" && !regionName.MatchString(o.DefaultRegion) {
		refuse("default-region", fmt.Errorf("%q is no region of AWS, such as eu-west-1", a.region))
	}
	return errors.Join(errs...)
}

// newCapaAnnotator is the program that runs the annotator alone, with the flags and
// defaults of the tool of that name.
func newCapaAnnotator() *cobra.Command {
	s := defaultSettings()
	s.annotator = defaultAnnotatorSettings(awsconfig.AuthIRSA)
	s.hub.LeaderElectionLease = hub.AnnotatorLease
	root := &cobra.Command{
		Use:   "capa-annotator [flags]",
		Short: "Annotate node groups with what a node of them would be",
		Long: `capa-annotator writes on the MachineDeployments, MachineSets without owner and
MachinePools of Cluster API Provider AWS what a node of them would be, from EC2's own
data, so that cluster-autoscaler can scale them from zero. It is Capstan's annotator
alone, for the management cluster; capstan itself runs it as well.`,
		Example: `  capa-annotator --leader-elect
  capa-annotator --kubeconfig=$HOME/.kube/management --namespace=team-a --aws-auth=default`,
		Version:       version(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			return run(c.Context(), "capa-annotator", s, c.ErrOrStderr(), func(o hub.Options) (program, error) { return hub.NewAlone(o) })
		},
	}
	f := root.Flags()
	s.registerProcess(f)
	s.annotator.register(f)
	s.registerLogging(f)
	return root
}
