{{/* The environment of a node: the twin of kitctl/environment.py. */}}

{{/* torchrun's knobs of the rendezvous, as JSON: [{key, value}] */}}
{{- define "training-job.rendezvousConf" -}}
{{- list
  (dict "key" "join_timeout" "value" (include "training-job.seconds" .Values.rendezvous.joinTimeout))
  (dict "key" "last_call_timeout" "value" (include "training-job.seconds" .Values.rendezvous.lastCall))
  (dict "key" "keep_alive_interval" "value" "1")
  (dict "key" "keep_alive_max_attempt" "value" "5")
  (dict "key" "read_timeout" "value" "15")
  (dict "key" "close_timeout" "value" "5") | toJson }}
{{- end }}

{{/* What torchrun reads. Kubeflow's operator sets these itself, from elasticPolicy. */}}
{{- define "training-job.launcher" -}}
{{- $job := include "training-job.view" . | fromJson }}
{{- $conf := list }}
{{- range include "training-job.rendezvousConf" . | fromJsonArray }}
{{- $conf = append $conf (printf "%s=%s" .key .value) }}
{{- end }}
PET_NNODES: {{ $job.nodes | toJson }}
PET_NPROC_PER_NODE: {{ int64 $job.ranksPerNode | toString | toJson }}
PET_RDZV_BACKEND: "c10d" # the only one that a plain torchrun knows of ours
PET_RDZV_CONF: {{ join "," $conf | toJson }}
PET_RDZV_ENDPOINT: {{ printf "%s:%d" $job.rendezvousHost (int64 .Values.rendezvous.port) | toJson }}
PET_MAX_RESTARTS: {{ int64 .Values.policy.maxRestarts | toString | toJson }}
PYTHONUNBUFFERED: "1"
{{- end }}

{{/* What kittrain.agent and the ranks read; a variable that would be empty is left out. */}}
{{- define "training-job.declared" -}}
{{- $job := include "training-job.view" . | fromJson }}
KIT_JOB: {{ $job.name | toJson }}
KIT_NAMESPACE: {{ $job.namespace | toJson }}
KIT_GPUS_PER_NODE: {{ int64 .Values.gpusPerNode | toString | toJson }}
KIT_BACKEND: {{ .Values.backend | toJson }}
{{- if ne .Values.rendezvous.backend "hub" }}
KIT_RENDEZVOUS: {{ .Values.rendezvous.backend | toJson }}
{{- end }}
{{- with .Values.nccl.interface }}
KIT_INTERFACE: {{ . | toJson }}
{{- end }}
KIT_GRACE_SECONDS: {{ include "training-job.seconds" .Values.policy.gracePeriod | toJson }}
{{- with .Values.virtualRanks }}
KIT_VIRTUAL_RANKS: {{ . | int64 | toString | toJson }}
{{- end }}
{{- if eq .Values.policy.hangTimeout "off" }}
KIT_HANG_TIMEOUT: "off"
{{- else if ne .Values.policy.hangTimeout "auto" }}
KIT_HANG_TIMEOUT: {{ include "training-job.seconds" .Values.policy.hangTimeout | toJson }}
{{- end }}
KIT_VERSION: {{ .Chart.AppVersion | toJson }}
KIT_TERMINATION_LOG: /dev/termination-log
KIT_EXIT_CODES: {{ $job.kind | toJson }}
TORCH_DISABLE_SHARE_RDZV_TCP_STORE: "1" # rank 0's store must not be the rendezvous' own
{{- with .Values.nccl.debug }}
NCCL_DEBUG: {{ . | toJson }}
{{- end }}
{{- with .Values.nccl.hca }}
NCCL_IB_HCA: {{ . | toJson }}
{{- end }}
{{- if .Values.nccl.ibDisable }}
NCCL_IB_DISABLE: "1"
{{- end }}
{{- if .Values.nccl.p2pDisable }}
NCCL_P2P_DISABLE: "1"
{{- end }}
{{- if .Values.snapshots.enabled }}
KIT_SNAPSHOT_DIR: {{ .Values.snapshots.path | toJson }}
KIT_SNAPSHOT_EVERY: {{ int64 .Values.snapshots.everySteps | toString | toJson }}
{{- with .Values.snapshots.every }}
KIT_SNAPSHOT_SECONDS: {{ include "training-job.seconds" . | toJson }}
{{- end }}
KIT_SNAPSHOT_KEEP: {{ int64 .Values.snapshots.keep | toString | toJson }}
{{- with .Values.snapshots.keepEvery }}
KIT_SNAPSHOT_KEEP_EVERY: {{ int64 . | toString | toJson }}
{{- end }}
{{- with .Values.snapshots.keepBest }}
KIT_SNAPSHOT_KEEP_BEST: {{ . | toJson }}
{{- end }}
{{- if not .Values.snapshots.copy }}
KIT_SNAPSHOT_COPY: "0"
{{- end }}
{{- if not .Values.snapshots.modelFile }}
KIT_MODEL_FILE: "0"
{{- end }}
{{- with .Values.snapshots.memoryEverySteps }}
KIT_MEMORY_EVERY: {{ int64 . | toString | toJson }}
{{- end }}
KIT_LOG_DIR: {{ printf "%s/logs" .Values.snapshots.path | toJson }}
{{- if .Values.resume }}
KIT_RESUME: {{ ternary "state" "1" (eq (toString .Values.resume) "state") | toJson }}
{{- end }}
{{- if .Values.fromScratch }}
KIT_FROM_SCRATCH: "1"
{{- end }}
{{- end }}
{{- with $job.secretName }}
KIT_SECRET_FILE: /var/run/secrets/kitctl.dev/key
{{- if $.Values.security.reportStatus }}
KIT_SECRET_NAME: {{ . | toJson }}
{{- end }}
{{- end }}
{{- if eq (toString .Values.security.rendezvousSecret) "require" }}
KIT_SECRET_REQUIRED: "1"
{{- end }}
{{- if not $job.indexed }}
KIT_OWNER: {{ printf "apis/kubeflow.org/v1/pytorchjobs/%s" $job.name | toJson }}
{{- end }}
{{- if .Values.security.reportStatus }}
KIT_REPORT: {{ printf "configmap:%s" $job.statusName | toJson }}
{{- end }}
{{- end }}

{{/* A pod's variables whose values are known here, as JSON: the user's own win over ours, secrets over both. */}}
{{- define "training-job.texts" -}}
{{- $job := include "training-job.view" . | fromJson }}
{{- $texts := include "training-job.declared" . | fromYaml }}
{{- if $job.indexed }}
{{- $texts = merge $texts (include "training-job.launcher" . | fromYaml) }}
{{- end }}
{{- range $name, $text := .Values.env }}
{{- $_ := set $texts $name $text }}
{{- end }}
{{- range $name, $_ := .Values.secrets }}
{{- $_ := unset $texts $name }}
{{- end }}
{{- toJson $texts }}
{{- end }}
