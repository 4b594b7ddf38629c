package main

import (
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// krew writes the manifest of the kubectl plugin: `kubectl krew install --manifest` takes it,
// and so does the index of krew.
func (r *release) krew(archives map[platform]string) error {
	var platforms []map[string]any
	for _, p := range r.cliPlatforms {
		sum, err := sha256Of(filepath.Join(r.out, archives[p]))
		if err != nil {
			return err
		}
		binary := filepath.Base(r.binary("capstan", p))
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": p.os, "arch": p.arch}},
			"uri":      projectURL + "/releases/download/" + r.version + "/" + archives[p],
			"sha256":   sum,
			"bin":      binary,
			"files":    []map[string]string{{"from": binary, "to": "."}, {"from": "LICENSE", "to": "."}},
		})
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]string{"name": "capstan"},
		"spec": map[string]any{
			"version":          r.version,
			"homepage":         projectURL,
			"shortDescription": "Shows and explains promotions across clusters",
			"description":      "Shows the state of Capstan's Pipelines, Promotions and connections to clusters\nin a Cluster API management cluster, and explains what each one waits for.\nApproves, rejects, retries, suspends, resumes, requests and rolls back promotions.\n",
			"platforms":        platforms,
		},
	})
	if err != nil {
		return err
	}
	return r.write(krewFile, text)
}
