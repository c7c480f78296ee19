{{/* The job as it exists on the cluster. `helm template` asks no cluster: the result is empty. */}}

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

{{/* Digest of everything that running pods are made from: an upgrade must not change it. */}}
{{- define "training-job.podDigest" -}}
{{- list (include "training-job.podTemplate" .) (include "training-job.torchrunEnv" .) .Values.sources | toJson | sha256sum | trunc 16 }}
{{- end }}
