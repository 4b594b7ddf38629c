{{/* capstan.image is the hub's image: by digest if there is one, else by tag. */}}
{{- define "capstan.image" -}}
{{- if .Values.image.digest -}}
{{ printf "%s@%s" .Values.image.repository .Values.image.digest | quote }}
{{- else -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end -}}
{{- end -}}

{{/* capstan.labels are on each object of the hub, and select its pods. */}}
{{- define "capstan.labels" -}}
app.kubernetes.io/name: capstan
app.kubernetes.io/component: hub
{{- end -}}

{{/* capstan.webhook is not empty if the hub serves webhooks: not in dry run. */}}
{{- define "capstan.webhook" -}}
{{- if and .Values.webhook.enabled (not .Values.dryRun) }}true{{ end -}}
{{- end -}}

{{/* capstan.hub is the hub's ServiceAccount, as the subject of a binding. */}}
{{- define "capstan.hub" -}}
kind: ServiceAccount
name: capstan-hub
namespace: {{ .Release.Namespace }}
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
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  - {{- include "capstan.hub" .root | nindent 4 }}
{{- end -}}
