{{/* The spec of an Indexed Job with one pod per node, equal to manifests/job-spec.yaml.j2. */}}
{{- define "training-job.jobSpec" -}}
{{- $job := include "training-job.job" . | fromJson }}
{{- $size := $job.pods }}
{{- if and .Values.scheduling.queue (not .Values.scale) }}
{{- $size = dig "spec" "parallelism" $size (include "training-job.live" . | fromJson) }}
{{- end -}}
completionMode: Indexed
completions: {{ $size }}
parallelism: {{ $size }} # in a queue, Kueue may have admitted fewer than the maximum
{{- if $job.mayLackNodes }}
successPolicy: # the job completes without nodes that never started
  rules:
    - succeededCount: {{ $job.minNodes }}
{{- end }}
backoffLimit: {{ .Values.policy.backoffLimit | toJson }}
podReplacementPolicy: Failed # never two pods with the same host name
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes:
        containerName: pytorch
        operator: In
        values: [{{ $job.kind.exitCodes.fatal }}]
    - action: Ignore # preempted, evicted, drained by the cluster
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
    - action: Ignore # drained: it took its snapshot, and continues in a new pod
      onExitCodes:
        containerName: pytorch
        operator: In
        values: [{{ $job.kind.exitCodes.drained }}]
{{- with .Values.policy.deadline }}
activeDeadlineSeconds: {{ include "training-job.seconds" . }}
{{- end }}
template:
  {{- include "training-job.podTemplate" . | nindent 2 }}
{{- end }}
