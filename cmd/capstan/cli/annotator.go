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

// annotatorSettings are the values of the annotator's flags.
type annotatorSettings struct {
	on       bool
	auth     string
	families []string
	maxPods  string
	region   string
	// parsedAuth is the checked form of auth; apply sets it.
	parsedAuth awsconfig.Auth
}

func defaultAnnotatorSettings(auth awsconfig.Auth) annotatorSettings {
	a := annotatorSettings{on: true, auth: string(auth), maxPods: string(capacity.PodsOff)}
	for _, f := range annotation.Families() {
		a.families = append(a.families, string(f))
	}
	return a
}

// register binds the flags of the annotator.
func (a *annotatorSettings) register(f *pflag.FlagSet) {
	f.StringVar(&a.auth, "aws-auth", a.auth, "source of the AWS credentials: irsa (only a web identity, IAM Roles for Service Accounts) or default (the SDK's chain: environment, files, web identity, EKS Pod Identity, the node's role)")
	f.StringSliceVar(&a.families, "annotation-families", a.families, "annotations to write, comma-separated: upstream (capacity.cluster-autoscaler.kubernetes.io/*, which cluster-autoscaler reads), openshift (machine.openshift.io/*) or both")
	f.StringVar(&a.maxPods, "max-pods", a.maxPods, "how the maximum number of pods of a node is calculated: off (not at all), eni (like the AWS VPC CNI), prefix-delegation (like the AWS VPC CNI with prefixes), fixed or fixed=N; the annotation capstan.dev/max-pods of a Cluster has priority")
	f.StringVar(&a.region, "default-region", a.region, "AWS region, such as eu-west-1, of node groups whose infrastructure, control plane and annotation name no region; when empty, such a node group is not annotated")
}

// regionName matches the names of AWS regions: eu-west-1, us-gov-east-1.
var regionName = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[0-9]+$`)

// apply checks all settings and sets the hub's options. The error joins all mistakes.
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
		refuse("default-region", fmt.Errorf("%q is not an AWS region, such as eu-west-1", a.region))
	}
	return errors.Join(errs...)
}

// newCapaAnnotator returns the program that runs only the annotator, with the flags and
// defaults of the tool capa-annotator.
func newCapaAnnotator() *cobra.Command {
	c := newAnnotator()
	c.Use = "capa-annotator [flags]"
	c.Long = c.Name() + strings.TrimPrefix(c.Long, "It")
	c.Example = `  capa-annotator --leader-elect
  capa-annotator --kubeconfig=$HOME/.kube/management --namespace=team-a --aws-auth=default`
	c.Version = version()
	c.SilenceUsage, c.SilenceErrors = true, true
	return c
}

// newAnnotator returns the same as a command of capstan, so that one image holds both.
func newAnnotator() *cobra.Command {
	s := defaultSettings()
	s.annotator = defaultAnnotatorSettings(awsconfig.AuthIRSA)
	s.hub.LeaderElectionLease = hub.AnnotatorLease
	c := &cobra.Command{
		Use:   "annotator [flags]",
		Short: "Annotate node groups with the capacity of a node",
		Long: `It annotates the MachineDeployments, MachineSets without owner and MachinePools of
Cluster API Provider AWS with the capacity of one of their nodes, so that
cluster-autoscaler can scale them from zero. It reads the capacity from EC2. This runs
only Capstan's annotator, for the management cluster; the hub runs the annotator, too.`,
		Example: `  capstan annotator --leader-elect
  capstan annotator --kubeconfig=$HOME/.kube/management --namespace=team-a --aws-auth=default`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return run(c.Context(), "capa-annotator", s, c.ErrOrStderr(), func(o hub.Options) (program, error) { return hub.NewAlone(o) })
		},
	}
	f := c.Flags()
	s.registerProcess(f)
	s.annotator.register(f)
	s.registerLogging(f)
	return c
}
