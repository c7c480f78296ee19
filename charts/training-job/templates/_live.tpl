{{/* The job as it exists on the cluster. `helm template` asks no cluster: the result is empty. */}}

{{/* The job that this release runs, as JSON; {} if it runs none. */}}
{{- define "training-job.live" -}}
{{- $job := include "training-job.view" . | fromJson }}
{{- $version := $job.indexed | ternary "batch/v1" "kubeflow.org/v1" }}
{{- $kind := $job.indexed | ternary "Job" "PyTorchJob" }}
{{- $served := .Capabilities.APIVersions.Has (printf "%s/%s" $version $kind) }}
{{- if and .Release.IsUpgrade $served }}
{{- lookup $version $kind $job.namespace $job.name | toJson }}
{{- else -}}
{}
{{- end }}
{{- end }}

{{/* Digest of everything that running pods are made from: an upgrade must not change it. */}}
{{- define "training-job.podDigest" -}}
{{- list (include "training-job.pod" .) (include "training-job.torchrunEnv" .) .Values.sources | toJson | sha256sum | trunc 16 }}
{{- end }}
