package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub"
)

// requestTimeout bounds the calls of one command to the API server, except for a watch.
const requestTimeout = 30 * time.Second

// errNoCredentials is the error of a command without a kubeconfig.
var errNoCredentials = errors.New("no credentials of a management cluster: set --kubeconfig or KUBECONFIG, or run in a pod")

// clusterFlags are kubectl's flags of the commands that call the API server of the management cluster.
type clusterFlags struct{ *genericclioptions.ConfigFlags }

// newClusterFlags adds the flags to a command. They have the names, the meaning and the texts of kubectl.
func newClusterFlags(c *cobra.Command) *clusterFlags {
	const persistent = true
	f := &clusterFlags{genericclioptions.NewConfigFlags(persistent)}
	f.CacheDir = nil // The commands cache nothing on disk.
	c.Flags().SortFlags = false
	f.AddFlags(c.Flags())
	f.complete(c)
	return f
}

// cluster is the management cluster, as the flags of a command select it.
type cluster struct {
	client.WithWatch
	config *rest.Config
	// namespace is that of --namespace, else that of the context, else default. given is whether --namespace has it.
	namespace string
	given     bool
}

// connect returns the cluster of the flags. It makes no call.
func (f *clusterFlags) connect() (*cluster, error) {
	loader := f.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the credentials of the management cluster: %w", err)
	}
	if len(raw.Clusters) == 0 && *f.APIServer == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return nil, errNoCredentials // Without this, client-go calls localhost:8080.
	}
	config, err := f.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the credentials of the management cluster: %w", err)
	}
	rest.AddUserAgent(config, "capstan/"+version())
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the namespace of the context: %w", err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: hub.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("calling the API server at %s: %w", config.Host, err)
	}
	return &cluster{WithWatch: c, config: config, namespace: namespace, given: *f.Namespace != ""}, nil
}

// key parses NAMESPACE/NAME, or NAME in the namespace of the flags. Both together must name the same namespace.
func (c *cluster) key(given string) (client.ObjectKey, error) {
	namespace, name, both := strings.Cut(given, "/")
	switch {
	case !both:
		namespace, name = c.namespace, given
	case c.given && namespace != c.namespace:
		return client.ObjectKey{}, fmt.Errorf("%q is in namespace %s, and --namespace is %s: omit one of the two", given, namespace, c.namespace)
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return client.ObjectKey{}, fmt.Errorf("%q is neither NAMESPACE/NAME, such as apps/shop, nor NAME", given)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

// user returns the name that the API server has for the user.
func (c *cluster) user(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return "", c.failed(err, access{doing: "reading your user name", verb: "create", resource: "selfsubjectreviews.authentication.k8s.io", role: "system:basic-user"})
	}
	return review.Status.UserInfo.Username, nil
}

// access is what a command does, for the error when it fails.
type access struct {
	// doing is the action, such as "reading Pipeline apps/shop".
	doing string
	// verb, resource and namespace are the right that it needs; the namespace is empty for all. role is a ClusterRole
	// that has the right.
	verb, resource, namespace, role string
}

// failed explains the error of a call: what is missing and how to get it. The error wraps err.
func (c *cluster) failed(err error, a access) error {
	switch {
	case meta.IsNoMatchError(err):
		what := a.resource
		var kind *meta.NoKindMatchError
		if errors.As(err, &kind) {
			what = "kind " + kind.GroupKind.String()
			if strings.HasSuffix(kind.GroupKind.Group, "x-k8s.io") {
				return fmt.Errorf("the cluster at %s does not serve %s: check that it is the management cluster (--context, --kubeconfig) and that Cluster API is installed: %w", c.config.Host, what, err)
			}
		}
		return fmt.Errorf("Capstan is not installed in the cluster at %s: it does not serve %s. Check that it is the management cluster (--context, --kubeconfig); "+
			"install Capstan with its chart, or its CRDs with `kubectl apply -k config/crd`: %w", c.config.Host, what, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: the API server at %s does not accept your credentials: renew those of the context: %w", a.doing, c.config.Host, err)
	case apierrors.IsForbidden(err):
		where, bind := "in namespace "+a.namespace, "a RoleBinding in namespace "+a.namespace
		if a.namespace == "" {
			where, bind = "in all namespaces", "a ClusterRoleBinding"
		}
		return fmt.Errorf("%s: you need the verb %s on %s %s: ask for %s to the ClusterRole %s: %w", a.doing, a.verb, a.resource, where, bind, a.role, err)
	}
	if noAnswer(err) {
		return fmt.Errorf("%s: the API server at %s is unreachable: check the network and the context (--context, --kubeconfig): %w", a.doing, c.config.Host, err)
	}
	return fmt.Errorf("%s: %w", a.doing, err)
}

// noAnswer returns whether an error says that the API server did not answer.
func noAnswer(err error) bool {
	var call *url.Error
	return errors.As(err, &call) || errors.Is(err, context.DeadlineExceeded)
}

// outage returns whether an error says that the API server cannot answer now: it may do so later.
func outage(err error) bool {
	var answer apierrors.APIStatus
	return noAnswer(err) || errors.As(err, &answer) && (answer.Status().Code >= http.StatusInternalServerError || answer.Status().Code == http.StatusTooManyRequests)
}
