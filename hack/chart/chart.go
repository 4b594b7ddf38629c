package chart

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

//go:generate go test . -run TestChartIsCurrent -update

const (
	// header of each template, as a comment that Helm does not render.
	header = "{{- /* Generated from config by `make generate`: see hack/chart. */ -}}\n"

	separator = "---\n"
)

// template is one file of the chart.
type template struct {
	// path in the chart.
	path string
	// sources in config, joined.
	sources []string
	// before and after the whole of it.
	before, after string
	// edits beside those of all templates.
	edits []edit
}

// edit replaces a text, which is to be there so many times.
type edit struct {
	from, to string
	times    int
}

// anyTimes of an edit: as often as it is there, which may be never.
const anyTimes = -1

// everywhere are the edits of all templates.
var everywhere = []edit{
	// What Prometheus puts in is none of Helm's business.
	{"{{", "{{ `{{", anyTimes},
	{"}}", "}}` }}", anyTimes},
	{"namespace: capstan-system", "namespace: {{ .Release.Namespace }}", anyTimes},
	{"system:serviceaccount:capstan-system:", "system:serviceaccount:{{ .Release.Namespace }}:", anyTimes},
}

// templates of the chart, but for those that are written by hand.
var templates = []template{
	{path: "crds.yaml", sources: []string{
		"crd/bases/capstan.dev_clusterconnections.yaml",
		"crd/bases/capstan.dev_promotions.yaml",
		"crd/bases/eventing.kyma-project.io_eventingbackends.yaml",
		"crd/bases/pipelines.weave.works_pipelines.yaml",
	}, before: "{{- if .Values.crds.install }}\n", after: "{{- end }}\n", edits: []edit{
		// With a CRD go all of its objects: to uninstall the hub is not to mean that.
		{"  annotations:\n    controller-gen", "  annotations:\n    helm.sh/resource-policy: keep\n    controller-gen", 4},
	}},
	{path: "rbac.yaml", sources: []string{
		"rbac/hub_role.yaml", "rbac/hub_role_binding.yaml",
		"rbac/leader_election_role.yaml", "rbac/leader_election_role_binding.yaml",
		"rbac/approver_role.yaml",
	}},
	{path: "cluster_secrets.yaml", sources: []string{"rbac/cluster-secrets/role.yaml", "rbac/cluster-secrets/role_binding.yaml"},
		before: "{{- range .Values.clusterNamespaces }}\n---\n", after: "{{- end }}\n",
		edits: inNamespaces("capstan-cluster-secrets")},
	{path: "pipeline_secrets.yaml", sources: []string{"rbac/pipeline-secrets/role.yaml", "rbac/pipeline-secrets/role_binding.yaml"},
		before: "{{- range .Values.pipelineNamespaces }}\n---\n", after: "{{- end }}\n",
		edits: inNamespaces("capstan-pipeline-secrets")},
	{path: "backend_secrets.yaml", sources: []string{"rbac/backend-secrets/role.yaml", "rbac/backend-secrets/role_binding.yaml"},
		before: "{{- range .Values.backendNamespaces }}\n---\n", after: "{{- end }}\n",
		edits: inNamespaces("capstan-backend-secrets")},
	{path: "admission.yaml", sources: []string{"admission/approval_policy.yaml", "admission/hub_policy.yaml"}},
	{path: "webhook.yaml", sources: []string{
		"webhook/validating_webhook.yaml", "webhook/mutating_webhook.yaml", "webhook/service.yaml", "webhook/certificate_secret.yaml",
		"webhook/role.yaml", "webhook/role_binding.yaml", "webhook/cluster_role.yaml", "webhook/cluster_role_binding.yaml",
	}, before: "{{- if .Values.webhook.enabled }}\n", after: "{{- end }}\n"},
	{path: "services.yaml", sources: []string{"manager/metrics_service.yaml", "manager/hook_service.yaml", "manager/api_service.yaml"}},
	{path: "disruption_budget.yaml", sources: []string{"manager/disruption_budget.yaml"},
		before: "{{- if gt (int .Values.replicas) 1 }}\n", after: "{{- end }}\n"},
	{path: "network_policy.yaml", sources: []string{"manager/network_policy.yaml"},
		before: "{{- if .Values.networkPolicy.enabled }}\n", after: "{{- end }}\n", edits: []edit{
			only("webhook.enabled", "        - port: webhook\n          protocol: TCP\n"),
			{"  ingress:\n", "  ingress:\n    {{- if .Values.dashboard.tlsSecret }}\n    - from:\n        - namespaceSelector:\n            matchLabels:\n              capstan.dev/dashboard: allow\n" +
				"      ports:\n        - port: dashboard\n          protocol: TCP\n    {{- end }}\n", 1},
		}},
	{path: "deployment.yaml", sources: []string{"manager/deployment.yaml"}, edits: []edit{
		{"  replicas: 2\n", "  replicas: {{ .Values.replicas }}\n", 1},
		{"          image: capstan\n", "          image: {{ include \"capstan.image\" . }}\n          imagePullPolicy: {{ .Values.image.pullPolicy }}\n", 1},
		{"      annotations:\n", "      annotations:\n        {{- with .Values.podAnnotations }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n", 1},
		{"            - --webhook-bind-address=:9443\n            - --webhook-cert-secret=capstan-system/capstan-hub-webhook\n",
			"            {{- if .Values.webhook.enabled }}\n            - --webhook-bind-address=:9443\n            - --webhook-cert-secret={{ .Release.Namespace }}/capstan-hub-webhook\n" +
				"            {{- else }}\n            - --webhook-bind-address=0\n            {{- end }}\n", 1},
		only("webhook.enabled", "            - name: webhook\n              containerPort: 9443\n"),
		// By TLS it is served to the network, too.
		{"            - --dashboard-bind-address=127.0.0.1:8090\n",
			"            {{- if .Values.dashboard.tlsSecret }}\n            - --dashboard-bind-address=:8090\n            - --dashboard-tls-cert-file=/dashboard/tls/tls.crt\n            - --dashboard-tls-key-file=/dashboard/tls/tls.key\n" +
				"            - --dashboard-session-key-file=/dashboard/session/key\n            {{- else }}\n            - --dashboard-bind-address=127.0.0.1:8090\n            {{- end }}\n", 1},
		{"          livenessProbe:\n", "            {{- if .Values.dashboard.tlsSecret }}\n            - name: dashboard\n              containerPort: 8090\n            {{- end }}\n          livenessProbe:\n", 1},
		{"          env:\n", "            {{- range .Values.extraArgs }}\n            - {{ . | quote }}\n            {{- end }}\n          env:\n            {{- with .Values.extraEnv }}\n            {{- toYaml . | nindent 12 }}\n            {{- end }}\n", 1},
		{"value: 900MiB", "value: {{ .Values.goMemoryLimit }}", 1},
		{"              cpu: 100m\n              memory: 256Mi\n            limits:\n              cpu: \"4\"\n              memory: 1Gi\n",
			"              {{- toYaml .Values.resources.requests | nindent 14 }}\n            limits:\n              {{- toYaml .Values.resources.limits | nindent 14 }}\n", 1},
		{"sizeLimit: 3Gi", "sizeLimit: {{ .Values.cloneDirSizeLimit }}", 1},
		{"          volumeMounts:\n", "          volumeMounts:\n            {{- if .Values.dashboard.tlsSecret }}\n" +
			mount("dashboard-tls", "/dashboard/tls") + mount("dashboard-session", "/dashboard/session") + "            {{- end }}\n            {{- with .Values.extraVolumeMounts }}\n            {{- toYaml . | nindent 12 }}\n            {{- end }}\n", 1},
		{"      volumes:\n", "      {{- with .Values.priorityClassName }}\n      priorityClassName: {{ . }}\n      {{- end }}\n" +
			placement("imagePullSecrets", "nodeSelector", "tolerations", "affinity") +
			"      volumes:\n        {{- if .Values.dashboard.tlsSecret }}\n" +
			volume("dashboard-tls", ".Values.dashboard.tlsSecret") + volume("dashboard-session", ".Values.dashboard.sessionKeySecret") + "        {{- end }}\n        {{- with .Values.extraVolumes }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n", 1},
	}},
	{path: "service_monitor.yaml", sources: []string{"monitoring/service_monitor.yaml"},
		before: "{{- if .Values.monitoring.serviceMonitor }}\n", after: "{{- end }}\n"},
	{path: "prometheus_rule.yaml", sources: []string{"monitoring/prometheus_rule.yaml"},
		before: "{{- if .Values.monitoring.prometheusRule }}\n", after: "{{- end }}\n"},
}

// inNamespaces makes a Role and its binding those of the namespace that is ranged over.
func inNamespaces(name string) []edit {
	return []edit{
		{"metadata:\n  name: " + name + "\n", "metadata:\n  name: " + name + "\n  namespace: {{ . }}\n", 2},
		// Within range, the release is the root's.
		{"{{ .Release.", "{{ $.Release.", 1},
	}
}

// only keeps a text where a value is true.
func only(value, text string) edit {
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	return edit{text, indent + "{{- if .Values." + value + " }}\n" + text + indent + "{{- end }}\n", 1}
}

// volume of the Secret that a value names, and where it is mounted.
func volume(name, value string) string {
	return "        - name: " + name + "\n          secret:\n            secretName: {{ " + value + " }}\n"
}

func mount(name, at string) string {
	return "            - name: " + name + "\n              mountPath: " + at + "\n              readOnly: true\n"
}

// placement passes values of a pod on as they are.
func placement(names ...string) string {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "      {{- with .Values.%s }}\n      %s:\n        {{- toYaml . | nindent 8 }}\n      {{- end }}\n", n, n)
	}
	return b.String()
}

// Files of the chart by their path in it, made of the manifests in config.
func Files(config fs.FS) (map[string]string, error) {
	files := map[string]string{}
	for _, t := range templates {
		text, err := t.render(config)
		if err != nil {
			return nil, fmt.Errorf("templates/%s: %w", t.path, err)
		}
		files["templates/"+t.path] = text
	}
	dashboard, err := fs.ReadFile(config, "monitoring/dashboard.json")
	if err != nil {
		return nil, err
	}
	files["files/dashboard.json"] = string(dashboard)
	return files, nil
}

func (t *template) render(config fs.FS) (string, error) {
	var documents []string
	for _, source := range t.sources {
		raw, err := fs.ReadFile(config, source)
		if err != nil {
			return "", err
		}
		documents = append(documents, strings.TrimPrefix(uncommented(string(raw)), separator))
	}
	text := strings.Join(documents, separator)
	var errs []error
	for _, e := range append(append([]edit{}, everywhere...), t.edits...) {
		if n := strings.Count(text, e.from); e.times != anyTimes && n != e.times {
			errs = append(errs, fmt.Errorf("%q is there %d times, not %d", e.from, n, e.times))
		}
		text = strings.ReplaceAll(text, e.from, e.to)
	}
	return header + t.before + text + t.after, errors.Join(errs...)
}

// uncommented leaves out the lines that are comments: they speak of files and commands
// of config.
func uncommented(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
