{{/* What the objects of this release have in common. */}}

{{- define "platform.labels" -}}
app.kubernetes.io/name: kitctl-platform
app.kubernetes.io/instance: {{ .Release.Name | toJson }}
app.kubernetes.io/managed-by: {{ .Release.Service | toJson }}
app.kubernetes.io/version: {{ .Chart.AppVersion | toJson }}
{{- end }}

{{/* What outlives the release, since running jobs need it. */}}
{{- define "platform.kept" -}}
annotations: {helm.sh/resource-policy: keep}
{{- end }}

{{/* The subjects of a role as a JSON list. Takes its users, groups and serviceAccounts. */}}
{{- define "platform.subjects" -}}
{{- $found := list }}
{{- range .users }}
{{- $found = append $found (dict "apiGroup" "rbac.authorization.k8s.io" "kind" "User" "name" .) }}
{{- end }}
{{- range .groups }}
{{- $found = append $found (dict "apiGroup" "rbac.authorization.k8s.io" "kind" "Group" "name" .) }}
{{- end }}
{{- range .serviceAccounts }}
{{- $parts := splitn "/" 2 . }}
{{- $found = append $found (dict "kind" "ServiceAccount" "namespace" $parts._0 "name" $parts._1) }}
{{- end }}
{{- $found | toJson }}
{{- end }}

{{/* Everybody with a role anywhere, as a JSON list of subjects, each once. */}}
{{- define "platform.everybody" -}}
{{- $roles := list (.Values.roles | default dict) }}
{{- range .Values.namespaces }}
{{- $roles = append $roles (dig "roles" dict (. | default dict)) }}
{{- end }}
{{- $found := list }}
{{- range $roles }}
{{- range list .user .admin }}
{{- $found = concat $found (include "platform.subjects" (. | default dict) | fromJsonArray) }}
{{- end }}
{{- end }}
{{- $found | uniq | toJson }}
{{- end }}

{{/* The pods of namespaces that may read Kubernetes nodes, as a JSON list of subjects. */}}
{{- define "platform.nodeReaders" -}}
{{- $found := list }}
{{- range $namespace, $one := .Values.namespaces }}
{{- if dig "nodeTaints" false ($one | default dict) }}
{{- $group := printf "system:serviceaccounts:%s" $namespace }}
{{- $found = append $found (dict "apiGroup" "rbac.authorization.k8s.io" "kind" "Group" "name" $group) }}
{{- end }}
{{- end }}
{{- $found | toJson }}
{{- end }}

{{/* A RoleBinding or ClusterRoleBinding. Takes context, name, namespace (none: of the cluster), role and subjects. */}}
{{- define "platform.binding" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ empty .namespace | ternary "ClusterRoleBinding" "RoleBinding" }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "platform.labels" .context | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .roleKind | default "ClusterRole" }}
  name: {{ .role }}
subjects:
  {{- range .subjects }}
  - {{ toJson . }}
  {{- end }}
{{- end }}
