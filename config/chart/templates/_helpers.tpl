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
capstan.settings are the flags of .Values.settings: a list gives its elements separated by commas, except for
a flag that is written once for each element.
*/}}
{{- define "capstan.settings" -}}
{{- range $name, $value := .Values.settings }}
{{- if and (kindIs "slice" $value) (eq $name "check-endpoint") }}
{{- range $value }}
- {{ printf "--%s=%s" $name . | quote }}
{{- end }}
{{- else if kindIs "slice" $value }}
- {{ printf "--%s=%s" $name (join "," $value) | quote }}
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
