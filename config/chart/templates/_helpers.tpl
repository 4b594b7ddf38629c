{{/* capstan.image is the hub's image: by digest if there is one, else by tag. */}}
{{- define "capstan.image" -}}
{{- if .Values.image.digest -}}
{{ printf "%s@%s" .Values.image.repository .Values.image.digest | quote }}
{{- else -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end -}}
{{- end -}}

{{/* capstan.selector selects the hub's pods. */}}
{{- define "capstan.selector" -}}
app.kubernetes.io/name: capstan
app.kubernetes.io/component: hub
{{- end -}}

{{/*
capstan.each renders a template once for each hub: for the only one, or for each of .Values.hubs. Its argument is the
chart's own context and the name of the template, which gets that context with the hub's values, and hub: an element of
.Values.hubs, empty for the only hub.
*/}}
{{- define "capstan.each" -}}
{{- $root := index . 0 -}}
{{- $template := index . 1 -}}
{{- if eq $root.Values.mode "hub" }}
{{- if hasKey $root.Values.settings "namespace" }}
{{- fail "settings.namespace is not allowed in mode hub: use hubs, which have the rights for their leases" }}
{{- end }}
{{- $names := dict }}
{{- $serve := dict }}
{{- range $root.Values.hubs }}
{{- if hasKey $names .name }}
{{- fail (printf "hubs: two hubs have the name %s" .name) }}
{{- end }}
{{- $_ := set $names .name true }}
{{- $hub := . }}
{{- range .namespaces }}
{{- if hasKey $serve . }}
{{- fail (printf "hubs: namespace %s is in the lists of %s and %s: one hub serves it" . (get $serve .) $hub.name) }}
{{- end }}
{{- $_ := set $serve . $hub.name }}
{{- end }}
{{- end }}
{{- range $hub := $root.Values.hubs | default (list dict) }}
{{- range $flag := list "namespace" "hub-name" }}
{{- if and $hub (or (hasKey $root.Values.settings $flag) (hasKey ($hub.settings | default dict) $flag)) }}
{{- fail (printf "settings.%s is not allowed with hubs: each of them has its own name and namespaces" $flag) }}
{{- end }}
{{- end }}
{{- $own := pick $hub "replicas" "resources" "goMemoryLimit" "settings" }}
{{- if $hub }}
{{- $dashboard := dict "url" ($hub.dashboardURL | default "") }}
{{- if and $root.Values.dashboard.certificate.enabled $root.Values.dashboard.tlsSecret }}
{{- /* Each Certificate writes a Secret of its own. */ -}}
{{- $dashboard = set $dashboard "tlsSecret" (printf "%s-%s" $root.Values.dashboard.tlsSecret $hub.name) }}
{{- end }}
{{- $own = merge $own (dict "dashboard" $dashboard) }}
{{- end }}
{{- $values := mergeOverwrite (deepCopy $root.Values) (deepCopy $own) }}
{{- include $template (dict "Values" $values "Release" $root.Release "Chart" $root.Chart "Capabilities" $root.Capabilities "hub" $hub) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* capstan.name is the name of a hub's objects. */}}
{{- define "capstan.name" -}}
capstan-hub{{ with .hub.name }}-{{ . }}{{ end }}
{{- end -}}

{{/* capstan.hubSelector selects the pods of one hub; capstan.selector those of all. */}}
{{- define "capstan.hubSelector" -}}
{{ include "capstan.selector" . }}
{{- with .hub.name }}
capstan.dev/hub: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* capstan.hubLabels are capstan.labels of an object of one hub. */}}
{{- define "capstan.hubLabels" -}}
{{ include "capstan.labels" . }}
{{- with .hub.name }}
capstan.dev/hub: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* capstan.labels are on the objects that users look for by label. */}}
{{- define "capstan.labels" -}}
{{ include "capstan.selector" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* capstan.common are the labels of an object that has no labels of its own. It follows the last field of metadata. */}}
{{- define "capstan.common" -}}
{{- with .Values.commonLabels }}
  labels:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end -}}

{{/* capstan.serviceAccount is the name of the ServiceAccount of the pods. */}}
{{- define "capstan.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (eq .Values.mode "annotator" | ternary "capa-annotator" "capstan-hub") }}
{{- end -}}

{{/* capstan.webhook is not empty if the hub serves webhooks: not in dry run. */}}
{{- define "capstan.webhook" -}}
{{- if and .Values.webhook.enabled (not .Values.dryRun) }}true{{ end -}}
{{- end -}}

{{/* capstan.hub is the hub's ServiceAccount, as the subject of a binding. */}}
{{- define "capstan.hub" -}}
kind: ServiceAccount
name: {{ include "capstan.serviceAccount" . }}
namespace: {{ .Release.Namespace }}
{{- end -}}

{{/*
capstan.settings are the flags of .Values.settings: that of a list is written once for each element.
*/}}
{{- define "capstan.settings" -}}
{{- range $name, $value := .Values.settings }}
{{- if kindIs "slice" $value }}
{{- range $value }}
- {{ printf "--%s=%s" $name . | quote }}
{{- end }}
{{- else if kindIs "string" $value }}
- {{ printf "--%s=%s" $name $value | quote }}
{{- else if not (kindIs "invalid" $value) }}
- {{ printf "--%s=%s" $name (toJson $value) | quote }}
{{- end }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{/* capstan.pod are the fields of a pod that users set; they follow its containers. */}}
{{- define "capstan.pod" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- range $field := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "hostAliases" "dnsConfig" }}
{{- with index $.Values $field }}
{{ $field }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- end -}}

{{/* capstan.podSecurity has no user: the image names one that is not root, and OpenShift sets its own. */}}
{{- define "capstan.podSecurity" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/*
capstan.secretReader lets the hub read the Secrets of one namespace. Its argument has name (of
the Role and of its binding), namespace and root, which is the chart's own context.
*/}}
{{- define "capstan.secretReader" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  {{- include "capstan.common" .root }}
rules:
  - apiGroups: [""]
    resources: [secrets]
    verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  {{- include "capstan.common" .root }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  - {{- include "capstan.hub" .root | nindent 4 }}
{{- end -}}
