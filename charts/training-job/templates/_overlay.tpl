{{/*
What a job adds to its pods beyond what kitctl renders, equal to kitctl/render/overlay.py: nothing is overwritten. Values are
passed on as JSON, whose numbers stay whole.
*/}}

{{/* The pod template with the job's additions. */}}
{{- define "training-job.podTemplate" -}}
{{- $added := include "training-job.overlay" . | fromJson }}
{{- if and $added (not (include "training-job.podProblems" . | trim)) }}{{/* rules.yaml reports the problems */}}
{{- $below := include "training-job.pod" . | fromYaml }}
{{- get (include "training-job.merge" (dict "below" $below "above" $added "path" "pod" "key" "") | fromJson) "value" | toJson }}
{{- else }}
{{- include "training-job.pod" . }}
{{- end }}
{{- end }}

{{/* The additions as a partial pod template: the fields of pod's plain keys, with its metadata and spec. */}}
{{- define "training-job.overlay" -}}
{{- $pod := .Values.pod }}
{{- $main := dict }}
{{- $claims := list }}
{{- $names := list }}
{{- range $pod.resourceClaims }}
{{- $claim := dict "name" .name }}
{{- with .claim }}{{ $_ := set $claim "resourceClaimName" . }}{{ end }}
{{- with .template }}{{ $_ := set $claim "resourceClaimTemplateName" . }}{{ end }}
{{- $claims = append $claims $claim }}
{{- $names = append $names (dict "name" .name) }}
{{- end }}
{{- with $names }}{{ $_ := set $main "resources" (dict "claims" .) }}{{ end }}
{{- with $pod.capabilities }}{{ $_ := set $main "securityContext" (dict "capabilities" (dict "add" .)) }}{{ end }}
{{- $saysWhy := dict "terminationMessagePolicy" "FallbackToLogsOnError" }}
{{- $init := list }}
{{- range $pod.initContainers }}{{ $init = append $init (merge (dict) . $saysWhy) }}{{ end }}
{{- range $pod.sidecars }}{{ $init = append $init (merge (dict "restartPolicy" "Always") . $saysWhy) }}{{ end }}
{{- $spec := dict }}
{{- if $pod.hostNetwork }}{{ $spec = dict "hostNetwork" true "dnsPolicy" "ClusterFirstWithHostNet" }}{{ end }}
{{- with $pod.affinity }}{{ $_ := set $spec "affinity" . }}{{ end }}
{{- with $pod.topologySpread }}{{ $_ := set $spec "topologySpreadConstraints" . }}{{ end }}
{{- with $init }}{{ $_ := set $spec "initContainers" . }}{{ end }}
{{- with $claims }}{{ $_ := set $spec "resourceClaims" . }}{{ end }}
{{- with $main }}{{ $_ := set $spec "containers" (list (merge (dict "name" "pytorch") .)) }}{{ end }}
{{- $metadata := dict }}
{{- with $pod.labels }}{{ $_ := set $metadata "labels" . }}{{ end }}
{{- with $pod.annotations }}{{ $_ := set $metadata "annotations" . }}{{ end }}
{{- $plain := dict }}
{{- with $metadata }}{{ $_ := set $plain "metadata" . }}{{ end }}
{{- with $spec }}{{ $_ := set $plain "spec" . }}{{ end }}
{{- $given := dict }}
{{- with $pod.metadata }}{{ $_ := set $given "metadata" . }}{{ end }}
{{- with $pod.spec }}{{ $_ := set $given "spec" . }}{{ end }}
{{- get (include "training-job.merge" (dict "below" $plain "above" $given "path" "pod" "key" "") | fromJson) "value" | toJson }}
{{- end }}

{{/* {"value": below with above}; "key" is the last part of "path". */}}
{{- define "training-job.merge" -}}
{{- $keyed := dict "containers" "name" "initContainers" "name" "env" "name" "volumes" "name" "ports" "name"
  "resourceClaims" "name" "claims" "name" "imagePullSecrets" "name" "volumeMounts" "mountPath" }}
{{- $path := .path }}
{{- if and (kindIs "map" .below) (kindIs "map" .above) }}
{{- $merged := deepCopy .below }}
{{- range $key, $value := .above }}
{{- if hasKey $merged $key }}
{{- $part := dict "below" (get $merged $key) "above" $value "path" (printf "%s.%s" $path $key) "key" $key }}
{{- $value = get (include "training-job.merge" $part | fromJson) "value" }}
{{- end }}
{{- $_ := set $merged $key $value }}
{{- end }}
{{- dict "value" $merged | toJson }}
{{- else if and (kindIs "slice" .below) (kindIs "slice" .above) (hasKey $keyed .key) }}
{{- $name := get $keyed .key }}
{{- $merged := .below }}
{{- range $item := .above }}
{{- $found := false }}
{{- $items := list }}
{{- range $merged }}
{{- if and (kindIs "map" .) (eq (get . $name) (get $item $name)) }}
{{- $found = true }}
{{- $where := printf "%s[%s]" $path (get $item $name) }}
{{- if not (omit $item $name) }}{{ fail (include "training-job.conflict" $where) }}{{ end }}
{{- $part := dict "below" . "above" (omit $item $name) "path" $where "key" "" }}
{{- $items = append $items (get (include "training-job.merge" $part | fromJson) "value") }}
{{- else }}
{{- $items = append $items . }}
{{- end }}
{{- end }}
{{- $merged = $found | ternary $items (append $items $item) }}
{{- end }}
{{- dict "value" $merged | toJson }}
{{- else }}
{{- fail (include "training-job.conflict" $path) }}
{{- end }}
{{- end }}

{{- define "training-job.conflict" -}}
{{ . }}: is set already; fix: remove it, and set the job's own key
{{- end }}
