{{/* The environment of a node: the twin of kitctl/render/environment.py. */}}

{{/* torchrun's settings of the rendezvous, as JSON: [{key, value}] */}}
{{- define "training-job.rendezvousConf" -}}
{{- list
  (dict "key" "join_timeout" "value" (include "training-job.seconds" .Values.rendezvous.joinTimeout))
  (dict "key" "last_call_timeout" "value" (include "training-job.seconds" .Values.rendezvous.lastCall))
  (dict "key" "keep_alive_interval" "value" "1")
  (dict "key" "keep_alive_max_attempt" "value" "5")
  (dict "key" "read_timeout" "value" "15")
  (dict "key" "close_timeout" "value" "5") | toJson }}
{{- end }}

{{/* torchrun's variables. Kubeflow's operator sets these itself, from elasticPolicy. */}}
{{- define "training-job.torchrunEnv" -}}
{{- $job := include "training-job.job" . | fromJson }}
{{- $conf := list }}
{{- range include "training-job.rendezvousConf" . | fromJsonArray }}
{{- $conf = append $conf (printf "%s=%s" .key .value) }}
{{- end }}
PET_NNODES: {{ $job.nodes | toJson }}
PET_NPROC_PER_NODE: {{ int64 $job.ranksPerNode | toString | toJson }}
PET_RDZV_BACKEND: "c10d" # plain torchrun does not know the hub
PET_RDZV_CONF: {{ join "," $conf | toJson }}
PET_RDZV_ENDPOINT: {{ printf "%s:%d" $job.rendezvousHost (int64 .Values.rendezvous.port) | toJson }}
PET_MAX_RESTARTS: {{ int64 .Values.policy.maxRestarts | toString | toJson }}
PYTHONUNBUFFERED: "1"
{{- end }}

{{/* The document that agents and ranks read, as JSON: a field for each key that they need. */}}
{{- define "training-job.agentSpec" -}}
{{- $job := include "training-job.job" . | fromJson }}
{{- $conf := dict }}
{{- range include "training-job.rendezvousConf" . | fromJsonArray }}
{{- $_ := set $conf .key .value }}
{{- end }}
{{- $hang := .Values.policy.hangTimeout }}
{{- if not (has $hang (list "auto" "off")) }}
{{- $hang = include "training-job.seconds" $hang | int64 }}
{{- end }}
{{- $spec := dict
  "version" 1
  "kitctl_version" .Chart.AppVersion
  "job" $job.name
  "namespace" $job.namespace
  "min_nodes" $job.minNodes
  "max_nodes" $job.maxNodes
  "procs_per_node" $job.ranksPerNode
  "gpus_per_node" .Values.gpusPerNode
  "backend" .Values.backend
  "interface" .Values.nccl.interface
  "rendezvous" .Values.rendezvous.backend
  "rendezvous_host" $job.rendezvousHost
  "rendezvous_port" .Values.rendezvous.port
  "rendezvous_conf" $conf
  "secret_required" (eq (toString .Values.security.rendezvousSecret) "require")
  "secret_file" (empty $job.secretName | ternary "" "/var/run/secrets/kitctl.dev/key")
  "secret_name" (.Values.security.reportStatus | ternary $job.secretName "")
  "owner" ($job.kind.podsKnowUid | ternary "" (printf "apis/%s/%s/%s" $job.kind.apiVersion $job.kind.plural $job.name))
  "exit_codes" $job.kind.exitCodes
  "restart_in_place" true
  "max_restarts" .Values.policy.maxRestarts
  "grace_seconds" (include "training-job.seconds" .Values.policy.gracePeriod | int64)
  "hang_timeout" $hang
  "virtual_ranks" .Values.virtualRanks
  "report" (.Values.security.reportStatus | ternary (printf "configmap:%s" $job.statusName) "")
  "log_dir" "" }}
{{- with $job.ranksByNode }}
{{- $_ := set $spec "procs_by_node" . }}
{{- end }}
{{- if .Values.snapshots.enabled }}
{{- $every := .Values.snapshots.every }}
{{- range $field, $value := dict
  "log_dir" (printf "%s/logs" .Values.snapshots.path)
  "snapshot_every" .Values.snapshots.everySteps
  "snapshot_seconds" (empty $every | ternary nil (include "training-job.seconds" (toString $every) | int64))
  "snapshot_keep" .Values.snapshots.keep
  "snapshot_keep_every" .Values.snapshots.keepEvery
  "snapshot_keep_best" .Values.snapshots.keepBest
  "snapshot_copy" .Values.snapshots.copy
  "model_file" .Values.snapshots.modelFile
  "memory_every" .Values.snapshots.memoryEverySteps
  "resume" .Values.resume
  "from_scratch" .Values.fromScratch }}
{{- $_ := set $spec $field $value }}
{{- end }}
{{- end }}
{{- with .Values.code.digest }}
{{- $_ := set $spec "code" . }}
{{- $archive := printf "/var/run/kitctl.dev/code/%s.tar.gz" . }}
{{- $_ := set $spec "code_store" (empty $.Values.code.configMap | ternary "/var/run/kitctl.dev/code" $archive) }}
{{- $_ := set $spec "workdir" "/workspace" }}
{{- end }}
{{- with .Values.outputs }}
{{- $_ := set $spec "outputs" . }}
{{- end }}
{{- with .Values.code.requirements }}
{{- $_ := set $spec "requirements" .digest }}
{{- $archive := printf "/var/run/kitctl.dev/requirements/%s.tar.gz" .digest }}
{{- $_ := set $spec "requirements_store" (empty .configMap | ternary "/var/run/kitctl.dev/requirements" $archive) }}
{{- end }}
{{- toJson $spec }}
{{- end }}

{{/* Further variables for agents, torch and NCCL; empty ones are omitted. */}}
{{- define "training-job.commonEnv" -}}
KIT_SPEC: {{ include "training-job.agentSpec" . | toJson }}
KIT_TERMINATION_LOG: /dev/termination-log
KIT_EXIT_CODES: "the image's kittrain is older than kitctl: rebuild the image, or name another with --image" # refused by name
{{- if .Values.snapshots.enabled }}
KIT_SNAPSHOT_DIR: {{ .Values.snapshots.path | toJson }}
{{- end }}
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
{{- end }}

{{/* A pod's variables whose values are known here, as JSON: the user's override the kit's, secrets override both. */}}
{{- define "training-job.env" -}}
{{- $job := include "training-job.job" . | fromJson }}
{{- $texts := include "training-job.commonEnv" . | fromYaml }}
{{- if not $job.kind.setsTorchrunEnv }}
{{- $texts = merge $texts (include "training-job.torchrunEnv" . | fromYaml) }}
{{- end }}
{{- range $name, $text := .Values.env }}
{{- $_ := set $texts $name $text }}
{{- end }}
{{- range $name, $_ := .Values.secrets }}
{{- $_ := unset $texts $name }}
{{- end }}
{{- toJson $texts }}
{{- end }}
