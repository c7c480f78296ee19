{{/*
Rules that the schema cannot express, one line per problem: those of kitctl/spec/rules.py without which a job would start but
not work, with the same messages, and the chart's own.
*/}}

{{- define "training-job.problems" -}}
{{- include "training-job.labelProblems" . }}
{{- include "training-job.sizeProblems" . }}
{{- include "training-job.processProblems" . }}
{{- include "training-job.nameProblems" . }}
{{- include "training-job.environmentProblems" . }}
{{- include "training-job.volumeProblems" . }}
{{- include "training-job.snapshotProblems" . }}
{{- include "training-job.resourceProblems" . }}
{{- include "training-job.podProblems" . }}
{{- include "training-job.sourceProblems" . }}
{{- include "training-job.kindProblems" . }}
{{- include "training-job.upgradeProblems" . }}
{{- include "training-job.metricsProblems" . }}
{{- end }}

{{- define "training-job.metricsProblems" -}}
{{- if and .Values.metrics.enabled (eq (int64 .Values.metrics.port) (int64 .Values.rendezvous.port)) }}
metrics.port: {{ int64 .Values.metrics.port }} is rendezvous.port; fix: give another port
{{- end }}
{{- end }}

{{- define "training-job.labelProblems" -}}
{{- $set := dict "kueue.x-k8s.io/queue-name" "scheduling.queue" "kueue.x-k8s.io/priority-class" "scheduling.workloadPriorityClass" }}
{{- $own := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/managed-by" "app.kubernetes.io/version" }}
{{- range $section := list "labels" "annotations" }}
{{- range $key, $value := get $.Values $section }}
{{- if hasKey $set $key }}
{{ $section }}.{{ $key }}: is set by kitctl; fix: use {{ get $set $key }}
{{- else if or (has $key $own) (hasPrefix "kitctl.dev/" $key) }}
{{ $section }}.{{ $key }}: is reserved by kitctl; fix: choose another one
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "training-job.sizeProblems" -}}
{{- $job := include "training-job.job" . | fromJson }}
{{- $min := int64 $job.minNodes }}
{{- $max := int64 $job.maxNodes }}
{{- $size := int64 $job.size }}
{{- if lt $min 1 }}
nodes: {{ .Values.nodes }} is not a valid node count; fix: use 1 or more, as in 3 or 2:4
{{- else if gt $min $max }}
nodes: {{ .Values.nodes }} has a minimum above its maximum; fix: write {{ $max }}:{{ $min }}
{{- else if and (ne $size $max) (eq $min $max) }}
scale: {{ $size }} nodes are not the {{ $max }} of nodes, which is fixed; fix: leave scale out, or install an elastic job, as in nodes: "2:4"
{{- else if and (ne $size $max) $job.kind.fixedSize }}
scale: {{ $job.kind.fixedSize }}; fix: leave scale out
{{- else if or (lt $size $min) (gt $size $max) }}
scale: {{ $size }} is outside nodes, {{ .Values.nodes }}; fix: give {{ $min }} to {{ $max }}, or reinstall the job with other nodes
{{- end }}
{{- end }}

{{- define "training-job.processProblems" -}}
{{- $job := include "training-job.job" . | fromJson }}
{{- $gpus := int64 .Values.gpusPerNode }}
{{- with $job.ranksByNode }}
{{- if $job.spares }}
procsPerNode: a spare needs as many ranks as the node that it replaces; fix: give one number, or spares: 0
{{- else if ne (int64 $job.minNodes) (int64 $job.maxNodes) }}
procsPerNode: a number for each node needs a fixed number of nodes; fix: give one number, or nodes: N
{{- else if ne (len .) (int $job.maxNodes) }}
procsPerNode: {{ $.Values.procsPerNode }} are for {{ len . }} nodes, not for {{ $job.maxNodes }}; fix: give a number for each node, or one for all
{{- end }}
{{- if and $gpus (gt (int64 $job.ranksPerNode) $gpus) }}
procsPerNode: {{ $job.ranksPerNode }} ranks are more than {{ $gpus }} GPU{{ ne (int $gpus) 1 | ternary "s" "" }}; fix: give at most {{ $gpus }} for each node
{{- end }}
{{- end }}
{{- end }}

{{- define "training-job.kindProblems" -}}
{{- $kind := include "training-job.kind" . | fromJson }}
{{- if and .Values.scheduling.queue (not $kind.inQueues) }}
scheduling.queue: a {{ $kind.name }} cannot wait in a queue; fix: use another kind, or no queue
{{- end }}
{{- with $kind.problems }}
{{- include . $ }}
{{- end }}
{{- end }}

{{- define "training-job.nameProblems" -}}
{{- $job := include "training-job.job" . | fromJson }}
{{- $ending := printf $job.kind.podName "" (sub $job.allNodes 1) }}
{{- $limit := sub 63 (add (len $ending) ($job.kind.randomSuffix | default 0)) | int }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $job.name) }}
name: '{{ $job.name }}' is not a DNS label; fix: use lower-case letters, digits and '-', a letter first and no '-' last
{{- else if gt (len $job.name) $limit }}
name: {{ len $job.name }} characters leave no room for the node index in the host name; fix: use at most {{ $limit }}
{{- end }}
{{- end }}

{{/* Names of variables that the launcher sets for every rank, as JSON. */}}
{{- define "training-job.reservedEnv" -}}
{{- list
  "RANK" "LOCAL_RANK" "GROUP_RANK" "ROLE_RANK"
  "WORLD_SIZE" "LOCAL_WORLD_SIZE" "GROUP_WORLD_SIZE" "ROLE_WORLD_SIZE"
  "MASTER_ADDR" "MASTER_PORT" "JOB_COMPLETION_INDEX" "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" | toJson }}
{{- end }}

{{- define "training-job.podProblems" -}}
{{- $kit := "is reserved by kitctl" }}
{{- $reserved := include "training-job.reservedEnv" . | fromJsonArray }}
{{- $switches := list "KIT_WARM_WORKERS" "KIT_SCRIPT_HOOKS" "KIT_RESTART_IN_PLACE" }}
{{- range list "restartPolicy" "hostname" "subdomain" "setHostnameAsFQDN" "activeDeadlineSeconds" }}
{{- if hasKey $.Values.pod.spec . }}
pod.spec.{{ . }}: {{ $kit }}; fix: remove it
{{- end }}
{{- end }}
{{- if $.Values.pod.spec.shareProcessNamespace }}
pod.spec.shareProcessNamespace: tini has to be process 1 of the ranks' container, and other containers would see the ranks' variables; fix: remove it; kubectl debug --target sees the ranks
{{- end }}
{{- if hasKey $.Values.pod.spec "ephemeralContainers" }}
pod.spec.ephemeralContainers: are of a running pod only; fix: use kubectl debug
{{- end }}
{{- range $container := $.Values.pod.spec.containers }}
{{- $where := printf "pod.spec.containers[%s]" (.name | default "None") }}
{{- if ne (.name | default "") "pytorch" }}
{{ $where }}: a job waits for it, and it may never end; fix: the ranks' container is pytorch; add others as pod.sidecars or pod.initContainers
{{- else }}
{{- range list "command" "args" "workingDir" "terminationMessagePath" "terminationMessagePolicy" }}
{{- if hasKey $container . }}
{{ $where }}.{{ . }}: {{ $kit }}; fix: remove it; command and args are keys of the job
{{- end }}
{{- end }}
{{- if .lifecycle }}
{{ $where }}.lifecycle: a hook of the ranks' container runs next to the agent, and takes from its grace period; fix: use pod.initContainers for what comes before; a script is told of its end by SIGTERM
{{- end }}
{{- range .env }}
{{- if and (not (has .name $switches)) (or (has .name $reserved) (regexMatch "^(PET_|KIT_|TORCHELASTIC_)" .name)) }}
{{ $where }}.env[{{ .name }}]: is set by the launcher for every rank; fix: use another name
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- range $number, $claim := $.Values.pod.resourceClaims }}
{{- if eq (empty .claim) (empty .template) }}
pod.resourceClaims[{{ $number }}]: needs one source; fix: set claim or template
{{- end }}
{{- end }}
{{- range $field := list "initContainers" "sidecars" }}
{{- range $number, $container := get $.Values.pod $field }}
{{- if or (empty .name) (empty .image) }}
pod.{{ $field }}[{{ $number }}]: needs a name and an image; fix: set name and image
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "training-job.environmentProblems" -}}
{{- $reserved := include "training-job.reservedEnv" . | fromJsonArray }}
{{- $switches := list "KIT_WARM_WORKERS" "KIT_SCRIPT_HOOKS" "KIT_RESTART_IN_PLACE" }}
{{- range $field := list "env" "secrets" }}
{{- range $name, $_ := get $.Values $field }}
{{- if and (not (has $name $switches)) (or (has $name $reserved) (regexMatch "^(PET_|KIT_|TORCHELASTIC_)" $name)) }}
{{ $field }}.{{ $name }}: is set by the launcher for every rank; fix: use another name
{{- end }}
{{- end }}
{{- end }}
{{- range $name := $switches }}
{{- if and (hasKey $.Values.env $name) (not (has (get $.Values.env $name) (list "0" "1"))) }}
env.{{ $name }}: is a switch; fix: give 0 or 1
{{- end }}
{{- end }}
{{- range $name, $_ := .Values.secrets }}
{{- if hasKey $.Values.env $name }}
secrets.{{ $name }}: is also in env; fix: keep one of the two
{{- end }}
{{- end }}
{{- range $number, $source := .Values.envFrom }}
{{- if eq (empty .configMap) (empty .secret) }}
envFrom[{{ $number }}]: needs one source; fix: set configMap or secret
{{- end }}
{{- end }}
{{- end }}

{{- define "training-job.volumeProblems" -}}
{{- range $number, $volume := .Values.volumes }}
{{- if ne (len (compact (list .claim .configMap .secret .emptyDir .hostPath .csi))) 1 }}
volumes[{{ $number }}]: needs one source; fix: set one of claim, configMap, secret, emptyDir, hostPath, csi
{{- end }}
{{- if not (hasPrefix "/" .mountPath) }}
volumes[{{ $number }}].mountPath: '{{ .mountPath }}' is relative; fix: begin it with /
{{- end }}
{{- end }}
{{- end }}

{{- define "training-job.snapshotProblems" -}}
{{- $job := include "training-job.job" . | fromJson }}
{{- with .Values.snapshots }}
{{- if and $job.sharesSnapshots (gt (int64 $job.allNodes) 1) (ne .accessMode "ReadWriteMany") }}
snapshots.accessMode: {{ .accessMode }} cannot be mounted by {{ $job.allNodes }} nodes; fix: use ReadWriteMany, nodes: 1, or snapshots.storage: perNode
{{- end }}
{{- if and $job.snapshotsInMemory (not .mirror) }}
snapshots.storage: memory is gone once all pods have ended, and all snapshots with it: the job's end, suspend, cancel, restart, a preemption of the whole job; fix: set snapshots.mirror: s3://BUCKET/PREFIX, or another storage
{{- end }}
{{- if and .enabled (not $job.sharesSnapshots) .claim }}
snapshots.claim: is a folder that all nodes share, and with snapshots.storage: {{ .storage }} each has its own; fix: leave it out, or snapshots.storage: claim
{{- end }}
{{- if and .enabled (not $job.sharesSnapshots) .memoryEverySteps }}
snapshots.memoryEverySteps: and snapshots.storage: {{ .storage }} exclude each other; fix: take snapshots more often: snapshots.everySteps
{{- end }}
{{- if not (hasPrefix "/" .path) }}
snapshots.path: '{{ .path }}' is relative; fix: begin it with /
{{- end }}
{{- with $.Values.outputs }}
{{- $script := first $.Values.command | default "" }}
{{- if hasPrefix "/" . }}
outputs: '{{ . }}' is absolute; fix: give a path in the working folder, and have the script write there or to $KIT_OUTPUTS_DIR
{{- else if has ".." (splitList "/" .) }}
outputs: '{{ . }}' is not a path in the working folder; fix: leave out '..' and control characters
{{- else if eq (clean .) "." }}
outputs: '{{ . }}' is the working folder itself; fix: name a folder in it, as in checkpoints
{{- else if hasPrefix (printf "%s/" (clean .)) (clean $script) }}
outputs: '{{ . }}' holds the script; fix: name a folder for what it writes alone
{{- end }}
{{- end }}
{{- if and $.Values.outputs (not $job.sharesSnapshots) }}
outputs: needs the claim for snapshots; fix: {{ .enabled | ternary "snapshots.storage: claim" "set snapshots.enabled" }}
{{- end }}
{{- if and $.Values.resume (not .enabled) }}
resume: needs snapshots; fix: set snapshots.enabled
{{- end }}
{{- end }}
{{- end }}

{{- define "training-job.resourceProblems" -}}
{{- range $part := list "requests" "limits" }}
{{- if hasKey (get $.Values.resources $part) $.Values.gpuResource }}
resources.{{ $part }}.{{ $.Values.gpuResource }}: already set by gpusPerNode; fix: remove it here
{{- end }}
{{- end }}
{{- if and (eq .Values.backend "nccl") (not (int64 .Values.gpusPerNode)) }}
backend: nccl needs GPUs; fix: set gpusPerNode, or backend: gloo
{{- end }}
{{- end }}

{{/* A chart cannot read the files that kitctl reads from the job file's folder. */}}
{{- define "training-job.sourceProblems" -}}
{{- with first .Values.command }}
{{- $script := clean . }}
{{- if not (or (hasPrefix "-" .) (hasPrefix "/" .) (hasKey $.Values.sources $script) $.Values.code.digest) }}
command: {{ . }} is not sent by the chart; fix: add --set-file 'sources.{{ replace "." "\\." $script }}={{ $script }}', or give an absolute path in the image
{{- end }}
{{- end }}
{{- if and .Values.workdir (not .Values.code.digest) }}
workdir: a chart cannot read the folder; fix: kitctl upload sends it; give what that prints as code
{{- end }}
{{- if and (ne .Values.trainer "image") (not (.Files.Get "files/kittrain.tar.xz")) }}
trainer: the chart lacks its file files/kittrain.tar.xz; fix: in a checkout, make setup packs it
{{- end }}
{{- if and .Values.requirements.file (not .Values.code.requirements) }}
requirements: a chart cannot read the file; fix: kitctl upload sends it; give what that prints as code
{{- end }}
{{- if and .Values.code.requirements (not (.Values.code.requirements).configMap) (not (and .Values.snapshots.enabled (eq .Values.snapshots.storage "claim"))) }}
code.requirements: without configMap they are on the claim for snapshots; fix: give configMap, or set snapshots.enabled
{{- end }}
{{- if and .Values.code.digest .Values.sources }}
sources: the folder of code takes their place; fix: give one of the two
{{- end }}
{{- if and .Values.code.digest (not .Values.code.configMap) (not (and .Values.snapshots.enabled (eq .Values.snapshots.storage "claim"))) }}
code: without configMap the folder is on the claim for snapshots; fix: give configMap, or set snapshots.enabled
{{- end }}
{{- if and .Values.send (not .Values.sources) (not .Values.code.digest) }}
send: a chart cannot read the files; fix: add --set-file 'sources.PATH=FILE' for each, with every dot of PATH as \.
{{- end }}
{{- end }}

{{- define "training-job.upgradeProblems" -}}
{{- $live := include "training-job.live" . | fromJson }}
{{- $digest := include "training-job.podDigest" . }}
{{- if ne $digest (dig "metadata" "annotations" "kitctl.dev/pod-digest" $digest $live) }}
{{ .Release.Name }}: its pods would change, and those of a job that is there cannot (scale can); fix: helm uninstall --wait --cascade foreground -n {{ .Release.Namespace }} {{ .Release.Name }}, then helm install it with resume: true to continue from its snapshots
{{- end }}
{{- end }}
