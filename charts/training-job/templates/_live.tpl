{{/* What is on the cluster already. `helm template` asks no cluster: there, nothing is. */}}

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

{{/* Of everything that running pods were made from, so that it may not change under them. */}}
{{- define "training-job.podDigest" -}}
{{- list (include "training-job.pod" .) (include "training-job.torchrunEnv" .) .Values.sources | toJson | sha256sum | trunc 16 }}
{{- end }}
