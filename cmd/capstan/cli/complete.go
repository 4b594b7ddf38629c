package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/useraction"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// completionTimeout bounds the calls for one completion: a user waits for it while typing.
const completionTimeout = 3 * time.Second

// pipelineKind is the kind of the names that most commands complete.
var pipelineKind = pipelinesv1.GroupVersion.WithKind(pipelinesv1.PipelineKind).GroupKind()

// completion completes an argument of a command; args are those before it.
type completion func(ctx context.Context, c *cluster, args []string) []string

// completing calls complete with the cluster of the flags. A failure completes nothing: a shell shows no errors.
func (f *clusterFlags) completing(complete completion) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := f.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		parent := cmd.Context()
		if parent == nil {
			parent = context.Background()
		}
		ctx, cancel := context.WithTimeout(parent, completionTimeout)
		defer cancel()
		if namespace, _, both := strings.Cut(typed, "/"); both && len(args) == 0 {
			c.namespace = namespace
			var all []cobra.Completion
			for _, name := range complete(ctx, c, args) {
				all = append(all, namespace+"/"+name)
			}
			return matching(all, typed), cobra.ShellCompDirectiveNoFileComp
		}
		return matching(complete(ctx, c, args), typed), cobra.ShellCompDirectiveNoFileComp
	}
}

func matching(all []string, typed string) []string {
	all = slices.DeleteFunc(all, func(s string) bool { return !strings.HasPrefix(s, typed) })
	slices.Sort(all)
	return all
}

// complete completes the values of the flags.
func (f *clusterFlags) complete(c *cobra.Command) {
	// The flags exist: AddFlags has added them.
	_ = c.RegisterFlagCompletionFunc("namespace", f.completing(func(ctx context.Context, c *cluster, _ []string) []string {
		return namesOf(ctx, c, "", corev1.SchemeGroupVersion.WithKind("Namespace"))
	}))
	_ = c.RegisterFlagCompletionFunc("context", func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		raw, err := f.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return matching(slices.Collect(maps.Keys(raw.Contexts)), typed), cobra.ShellCompDirectiveNoFileComp
	})
}

// oneName completes one argument: the name of an object of a kind, in whichever version is served.
func (f *clusterFlags) oneName(kind schema.GroupKind) cobra.CompletionFunc {
	return f.completing(func(ctx context.Context, c *cluster, args []string) []string {
		if len(args) > 0 {
			return nil
		}
		served, err := c.RESTMapper().RESTMapping(kind)
		if err != nil {
			return nil
		}
		return namesOf(ctx, c, c.namespace, served.GroupVersionKind)
	})
}

// namesOf returns the names of the objects of a kind in a namespace; none if they cannot be listed.
func namesOf(ctx context.Context, c *cluster, namespace string, kind schema.GroupVersionKind) []string {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// subjects completes the arguments of an action: a Pipeline, then an environment to which the action can be done
// now. The names of Pipelines are those of Promotions where the user may not read Pipelines.
func (f *clusterFlags) subjects(a *useraction.Action) cobra.CompletionFunc {
	return f.completing(func(ctx context.Context, c *cluster, args []string) []string {
		switch {
		case len(args) == 0:
			return pipelineNames(ctx, c)
		case len(args) > 1 || !a.OnPromotion && a.Parts == 0:
			return nil
		}
		key, err := c.key(args[0])
		if err != nil {
			return nil
		}
		of, err := promotions.OfName(ctx, c, key)
		if err != nil {
			return nil
		}
		var names []string
		if a.OnPromotion {
			for _, p := range newestInto(of) {
				if a.Refuse(of, &useraction.Subject{Promotion: p}) == nil {
					names = append(names, p.Spec.Environment)
				}
			}
			return names
		}
		var p pipelinesv1.Pipeline
		if err := c.Get(ctx, key, &p); err != nil {
			return nil
		}
		shown := p.Shown()
		for i := range shown.Spec.Environments {
			if name := shown.Spec.Environments[i].Name; a.Refuse(of, &useraction.Subject{Pipeline: shown, Environment: name}) == nil {
				names = append(names, name)
			}
		}
		return names
	})
}

func pipelineNames(ctx context.Context, c *cluster) []string {
	if names := namesOf(ctx, c, c.namespace, pipelinesv1.GroupVersion.WithKind(pipelineKind.Kind)); names != nil {
		return names
	}
	var all capstanv1.PromotionList
	if err := c.List(ctx, &all, client.InNamespace(c.namespace)); err != nil {
		return nil
	}
	names := map[string]bool{}
	for i := range all.Items {
		names[all.Items[i].Spec.Pipeline.Name] = true
	}
	return slices.Collect(maps.Keys(names))
}
