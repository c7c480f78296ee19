{{/* Values that the templates share, computed from the chart's values as kitctl/render/template_values.py does. */}}

{{/* The job as JSON: `$job := include "training-job.job" . | fromJson` */}}
{{- define "training-job.job" -}}
{{- $name := .Values.name | default .Release.Name }}
{{- $namespace := .Values.namespace | default .Release.Namespace }}
{{- $kind := include "training-job.kind" . | fromJson }}
{{- $given := splitList "+" (toString .Values.nodes) }}
{{- $sizes := first $given | splitList ":" }}
{{- $spares := gt (len $given) 1 | ternary (last $given) (toString .Values.spares) | atoi }}
{{- $min := first $sizes | atoi }}
{{- $max := last $sizes | atoi }}
{{- $procs := toString .Values.procsPerNode }}
{{- $byNode := list }}
{{- $ranks := eq $procs "auto" | ternary (max 1 .Values.gpusPerNode | toString) $procs | splitList "," }}
{{- if and (gt (len $ranks) 1) (or (gt (len (uniq $ranks)) 1) (ne (len $ranks) $max)) }}
{{- range $ranks }}
{{- $byNode = append $byNode (atoi .) }}
{{- end }}
{{- end }}
{{- $most := 0 }}
{{- $sum := 0 }}
{{- range $ranks }}
{{- $most = max $most (atoi .) }}
{{- $sum = add $sum (atoi .) }}
{{- end }}
{{- $node := printf $kind.podName $name 0 }}
{{- if or $kind.headlessService $kind.subdomain }}
{{- $node = printf "%s.%s" $node $name }}
{{- end }}
{{- $common := dict
  "app.kubernetes.io/name" "kitctl-job"
  "app.kubernetes.io/instance" $name
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $common = merge $common .Values.labels }}
{{- $labels := dict }}
{{- range list "trainer" "rendezvous" "status" "sources" "snapshots" "access" "test" }}
{{- $_ := set $labels . (set (deepCopy $common) "app.kubernetes.io/component" .) }}
{{- end }}
{{- $_ := set $labels "job" (deepCopy $labels.trainer) }}
{{- with .Values.scheduling.queue }}
{{- $_ := set $labels.job "kueue.x-k8s.io/queue-name" . }}
{{- end }}
{{- with .Values.scheduling.workloadPriorityClass }}
{{- $_ := set $labels.job "kueue.x-k8s.io/priority-class" . }}
{{- end }}
{{- $podGroup := get (include "training-job.podGroups" . | fromYaml) .Values.scheduling.podGroup | default dict }}
{{- $_ := set $labels "pod" (deepCopy $labels.trainer) }}
{{- with $podGroup.label }}
{{- $_ := set $labels.pod . $name }}
{{- end }}
{{- $size := .Values.scale | default $max }}
{{- $defaults := get (lookup "v1" "ConfigMap" $namespace "kitctl-defaults" | default dict) "data" | default dict }}
{{- $annotations := deepCopy .Values.annotations }}
{{- if and .Values.scheduling.queue $kind.queueAdmitsFewer (lt $min $max) }}
{{- $_ := set $annotations "kueue.x-k8s.io/elastic-job" "true" }}
{{- if lt $min (int $size) }}
{{- $_ := set $annotations "kueue.x-k8s.io/job-min-parallelism" (toString $min) }}
{{- $_ := set $annotations "kueue.x-k8s.io/job-completions-equal-parallelism" "true" }}
{{- end }}
{{- end }}
{{- dict
  "name" $name
  "namespace" $namespace
  "kind" $kind
  "nodes" (eq $min $max | ternary (toString $min) (first $given))
  "minNodes" $min
  "maxNodes" $max
  "spares" $spares
  "size" (int64 $size)
  "pods" (eq (int $size) $max | ternary (add $size $spares) (int64 $size))
  "allNodes" (add $max $spares)
  "mayLackNodes" (or (lt $min $max) (gt $spares 0))
  "ranksPerNode" (int64 $most)
  "ranksByNode" $byNode
  "ranks" (empty $byNode | ternary (mul $size $most) $sum)
  "labels" $labels
  "annotations" $annotations
  "podGroup" $podGroup
  "selector" (pick $labels.trainer "app.kubernetes.io/instance" "app.kubernetes.io/component")
  "needsTmp" (and (eq .Values.security.profile "restricted") .Values.security.readOnlyRoot)
  "serviceAccount" (.Values.security.serviceAccount | default (.Values.security.reportStatus | ternary $name ""))
  "sharesSnapshots" (and .Values.snapshots.enabled (eq .Values.snapshots.storage "claim"))
  "snapshotsInMemory" (and .Values.snapshots.enabled (eq .Values.snapshots.storage "memory"))
  "claim" (.Values.snapshots.claim | default (printf "%s-snapshots" $name))
  "secretName" (empty .Values.security.rendezvousSecret | ternary "" (printf "%s-rendezvous" $name))
  "statusName" (printf "%s-status" $name)
  "sourcesName" (printf "%s-sources" $name)
  "trainerNames" (eq .Values.trainer "image" | ternary list (list (printf "%s-trainer" $name) (printf "%s-trainer-2" $name)))
  "image" (include "training-job.image" (list .Values.image $defaults (include "training-job.defaults" . | fromJson).image))
  "imagePullSecrets" (.Values.imagePullSecrets | default (compact (splitList " " (get $defaults "imagePullSecrets"))))
  "rendezvousHost" (printf "%s.%s.svc.%s" $node $namespace .Values.rendezvous.clusterDomain)
  | toJson }}
{{- end }}

{{/* The image of a job in a namespace with these defaults, equal to kitctl's namespace_defaults.py. Takes both, and kitctl's own. */}}
{{- define "training-job.image" -}}
{{- $image := index . 0 }}
{{- $defaults := index . 1 }}
{{- if eq $image "auto" }}
{{- $image = get $defaults "image" | default (index . 2) }}
{{- end }}
{{- $host := contains "/" $image | ternary (splitList "/" $image | first) "" }}
{{- $mirror := get $defaults "mirror" | trimSuffix "/" }}
{{- if or (contains "." $host) (contains ":" $host) (eq $host "localhost") (empty $mirror) }}
{{- $image }}
{{- else }}
{{- printf "%s/%s" $mirror $image }}
{{- end }}
{{- end }}

{{/* What identifies the trainer that is sent, as in kitctl/code/trainer_package.py. */}}
{{- define "training-job.trainerDigest" -}}
{{- printf "%s%s" (.Files.Get "files/bootstrap.py") (.Files.Get "files/kittrain.tar.xz") | sha256sum }}
{{- end }}

{{/* The plugins that start nodes only together, equal to kitctl/render/pod_groups.py. */}}
{{- define "training-job.podGroups" -}}
coscheduling: {apiVersion: scheduling.x-k8s.io/v1alpha1, label: scheduling.x-k8s.io/pod-group}
volcano:
  apiVersion: scheduling.volcano.sh/v1beta1
  annotation: scheduling.k8s.io/group-name
  scheduler: volcano
{{- end }}

{{/* "1h30m" or "90" as whole seconds. */}}
{{- define "training-job.seconds" -}}
{{- $total := regexMatch "^[0-9]+$" . | ternary (atoi .) 0 }}
{{- range regexFindAll "[0-9]+[dhms]" . -1 }}
{{- $unit := get (dict "d" 86400 "h" 3600 "m" 60 "s" 1) (regexFind "[dhms]" .) }}
{{- $total = add $total (mul (regexFind "[0-9]+" . | atoi) $unit) }}
{{- end }}
{{- $total }}
{{- end }}

{{/* A ConfigMap's key for a file: its path if that is a valid key, else a similar, unique one. */}}
{{- define "training-job.sourceKey" -}}
{{- $key := regexReplaceAll "[^-._a-zA-Z0-9]" . "_" }}
{{- eq $key . | ternary $key (printf "%s.%s" $key (sha256sum . | trunc 8)) }}
{{- end }}

{{/* Text escaped for Kubernetes, which would expand $(NAME), and reads $$ as $. */}}
{{- define "training-job.literal" -}}
{{- replace "$" "$$" . | toJson }}
{{- end }}
