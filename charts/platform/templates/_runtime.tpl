{{/* The common part of both runtimes: a Job with one pod per node, as in manifests/job-spec.yaml.j2. */}}

{{- define "platform.metadata" -}}
labels:
  {{- include "platform.labels" . | nindent 2 }}
  trainer.kubeflow.org/framework: torch
  kitctl.dev/runtime: "1" # which version of this kitctl knows
{{- end }}

{{/* How pods are replaced, and what the agent's exit codes mean. */}}
{{- define "platform.jobPolicy" -}}
completionMode: Indexed
backoffLimit: 100
podReplacementPolicy: Failed # never two pods with the same host name
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes: {containerName: node, operator: In, values: [78]}
    - action: Ignore # preempted, evicted, drained by the cluster
      onPodConditions:
        - {type: DisruptionTarget, status: "True"}
    - action: Ignore # drained: it took its snapshot, and continues in a new pod
      onExitCodes: {containerName: node, operator: In, values: [75]}
{{- end }}

{{- define "platform.podPolicy" -}}
restartPolicy: Never
enableServiceLinks: false
terminationGracePeriodSeconds: 60
{{- end }}

{{/* The image of TrainJobs that name none, as kitctl's namespace_defaults.py has it of a namespace; `kitctl`: its own. Takes the defaults. */}}
{{- define "platform.image" -}}
{{- $host := contains "/" .image | ternary (splitList "/" .image | first) "" }}
{{- $mirror := trimSuffix "/" .mirror }}
{{- if or (empty .image) (empty $mirror) (contains "." $host) (contains ":" $host) (eq $host "localhost") }}
{{- .image | default "kitctl" }}
{{- else }}
{{- printf "%s/%s" $mirror .image }}
{{- end }}
{{- end }}
