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

{{/* What of the values differs from the defaults, as JSON; takes both, and looks only at the keys that have defaults. */}}
{{- define "training-job.selected" -}}
{{- $found := dict }}
{{- range $key, $default := .defaults }}
{{- $value := get $.values $key }}
{{- if kindIs "map" $default }}
{{- with include "training-job.selected" (dict "values" $value "defaults" $default) | fromJson }}
{{- $_ := set $found $key . }}
{{- end }}
{{- else if and (hasKey $.values $key) (ne (toJson $value) (toJson $default)) }}
{{- $_ := set $found $key $value }}
{{- end }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{/* What agents and ranks are told about this run, as JSON: the twin of cluster_run in kitctl/render/environment.py. */}}
{{- define "training-job.run" -}}
{{- $job := include "training-job.job" . | fromJson }}
{{- $run := dict
  "kitctl" .Chart.AppVersion
  "rendezvousHost" $job.rendezvousHost
  "rendezvousPort" .Values.rendezvous.port
  "owner" ($job.kind.podsKnowUid | ternary "" (printf "apis/%s/%s/%s" $job.kind.apiVersion $job.kind.plural $job.name))
  "secretFile" (empty $job.secretName | ternary "" "/var/run/secrets/kitctl.dev/key")
  "secretName" (.Values.security.reportStatus | ternary $job.secretName "")
  "restartInPlace" true
  "logDir" ((and .Values.snapshots.enabled (eq .Values.snapshots.storage "claim")) | ternary (printf "%s/logs" .Values.snapshots.path) "")
  "report" (.Values.security.reportStatus | ternary (printf "configmap:%s" $job.statusName) "") }}
{{- $defaults := include "training-job.defaults" . | fromJson }}
{{- $run = include "training-job.selected" (dict "values" $run "defaults" $defaults.run) | fromJson }}
{{- if ne (toJson $job.kind.exitCodes) (toJson $defaults.exitCodes) }}
{{- $_ := set $run "exitCodes" $job.kind.exitCodes }}
{{- end }}
{{- with .Values.code.digest }}
{{- $store := empty $.Values.code.configMap | ternary "" (printf "/%s.tar.gz" .) | printf "/var/run/kitctl.dev/code%s" }}
{{- $_ := set $run "code" (dict "digest" . "store" $store "workdir" "/workspace") }}
{{- end }}
{{- with .Values.code.requirements }}
{{- $store := empty .configMap | ternary "" (printf "/%s.tar.gz" .digest) | printf "/var/run/kitctl.dev/requirements%s" }}
{{- $_ := set $run "packages" (dict "digest" .digest "store" $store) }}
{{- end }}
{{- toJson $run }}
{{- end }}

{{/* The document that agents and ranks read, as JSON: the settings that they need and that are no defaults, and the run. */}}
{{- define "training-job.document" -}}
{{- $job := include "training-job.job" . | fromJson }}
{{- $defaults := include "training-job.defaults" . | fromJson }}
{{- $procs := toString .Values.procsPerNode }}
{{- if $job.ranksByNode }}
{{- $procs = join "," $job.ranksByNode }}
{{- else if ne $procs "auto" }}
{{- $procs = int64 $job.ranksPerNode }}
{{- end }}
{{- $own := dict
  "name" $job.name
  "namespace" $job.namespace
  "nodes" (eq (int $job.minNodes) (int $job.maxNodes) | ternary (int $job.minNodes) $job.nodes)
  "spares" $job.spares
  "procsPerNode" $procs }}
{{- $settings := include "training-job.selected" (dict "values" (merge $own .Values) "defaults" $defaults.job) | fromJson }}
{{- $document := dict "version" $defaults.version "job" $settings "run" (include "training-job.run" . | fromJson) | toJson }}
{{- if gt (len $document) (int $defaults.limit) }}
{{- fail (printf "the job's settings take %d bytes, and a variable holds %d: shorten the longest of them" (len $document) (int $defaults.limit)) }}
{{- end }}
{{- $document }}
{{- end }}

{{/* Further variables for agents, torch and NCCL; empty ones are omitted. */}}
{{- define "training-job.commonEnv" -}}
KIT_SPEC: {{ include "training-job.document" . | toJson }}
KIT_TERMINATION_LOG: /dev/termination-log
{{- if .Values.snapshots.enabled }}
KIT_SNAPSHOT_DIR: {{ .Values.snapshots.path | toJson }}
{{- end }}
PYTHONHASHSEED: "0" # one order of each set of texts on all ranks and after each restart
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

{{/* A pod's variables whose values are known here, as JSON: the user's override kitctl's, secrets override both. */}}
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
