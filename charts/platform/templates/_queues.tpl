{{/* Parts of a ClusterQueue. */}}

{{/* The selector of the namespaces that have a queue; without any, none may use it. Takes namespaces and queue. */}}
{{- define "platform.members" -}}
{{- $found := list }}
{{- range $namespace, $one := .namespaces }}
{{- if eq (($one | default dict).queue | default "") $.queue }}
{{- $found = append $found $namespace }}
{{- end }}
{{- end }}
{{- if $found -}}
namespaceSelector:
  matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson $found }}}
{{- end }}
{{- end }}

{{/* The quotas of its flavors, which have the same resources. Takes the queue's name, and quotas by flavor. */}}
{{- define "platform.resourceGroup" -}}
{{- $flavors := keys .quotas | sortAlpha }}
{{- $resources := index .quotas (first $flavors) | keys | sortAlpha -}}
- coveredResources: {{ toJson $resources }}
  flavors:
    {{- range $flavor := $flavors }}
    {{- $quotas := index $.quotas $flavor }}
    {{- if ne (keys $quotas | sortAlpha | toJson) (toJson $resources) }}
    {{- $fix := printf "give each of %s a quota, 0 for none" (join ", " (concat $resources (keys $quotas) | uniq | sortAlpha)) }}
    {{- fail (printf "queues.clusterQueues.%s.quotas: %s and %s have other resources; fix: %s" $.name (first $flavors) $flavor $fix) }}
    {{- end }}
    - name: {{ $flavor }}
      resources:
        {{- range $resources }}
        - {name: {{ . }}, nominalQuota: {{ index $quotas . | toJson }}}
        {{- end }}
    {{- end }}
{{- end }}
