{{/* The job as it exists on the cluster. `helm template` has no cluster: the result is empty. */}}

{{/* The job that this release runs, as JSON; {} if it runs none. */}}
{{- define "training-job.live" -}}
{{- $job := include "training-job.job" . | fromJson }}
{{- $served := .Capabilities.APIVersions.Has (printf "%s/%s" $job.kind.apiVersion $job.kind.resource) }}
{{- if and .Release.IsUpgrade $served }}
{{- lookup $job.kind.apiVersion $job.kind.resource $job.namespace $job.name | toJson }}
{{- else -}}
{}
{{- end }}
{{- end }}

{{/* Digest of the pod template, and of the kind's other immutable fields: an upgrade must not change it. */}}
{{- define "training-job.podDigest" -}}
{{- $job := include "training-job.job" . | fromJson }}
{{- $parts := list (include "training-job.podTemplate" .) (include "training-job.torchrunEnv" .) .Values.sources }}
{{- if $job.kind.fixedSize }}
{{- $parts = append $parts (include "training-job.jobSpec" .) }}
{{- end }}
{{- $parts | toJson | sha256sum | trunc 16 }}
{{- end }}
