{{/* The pod template of all kinds, equal to manifests/pod.yaml.j2. */}}
{{- define "training-job.pod" -}}
{{- $job := include "training-job.job" . | fromJson -}}
metadata:
  labels: {{ $job.labels.pod | toJson }}
  {{- if or $job.podGroup.annotation .Values.metrics.enabled }}
  annotations:
    {{- with $job.podGroup.annotation }}
    {{ . }}: {{ $job.name | toJson }}
    {{- end }}
    {{- if .Values.metrics.enabled }}
    kitctl.dev/metrics-port: {{ .Values.metrics.port | toString | toJson }}
    {{- end }}
  {{- end }}
spec:
  {{- with $job.kind.restartPolicy }}
  restartPolicy: {{ . | toJson }}
  {{- end }}
  {{- if $job.kind.headlessService }}
  subdomain: {{ $job.name | toJson }}
  {{- end }}
  enableServiceLinks: false
  automountServiceAccountToken: {{ or .Values.security.reportStatus (gt (len .Values.policy.drainTaints) 0) }}
  {{- with $job.serviceAccount }}
  serviceAccountName: {{ . | toJson }}
  {{- end }}
  {{- with $job.imagePullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | toJson }}
    {{- end }}
  {{- end }}
  terminationGracePeriodSeconds: {{ include "training-job.seconds" .Values.policy.gracePeriod }}
  {{- include "training-job.podSecurity" . | nindent 2 }}
  {{- with .Values.scheduling.priorityClass }}
  priorityClassName: {{ . | toJson }}
  {{- end }}
  {{- with .Values.scheduling.scheduler | default $job.podGroup.scheduler }}
  schedulerName: {{ . | toJson }}
  {{- end }}
  {{- with .Values.scheduling.nodeSelector }}
  nodeSelector: {{ . | toJson }}
  {{- end }}
  {{- with .Values.scheduling.tolerations }}
  tolerations:
    {{- range . }}
    - {{ include "training-job.toleration" . }}
    {{- end }}
  {{- end }}
  {{- if ne .Values.scheduling.spread "none" }}
  affinity:
    podAntiAffinity:
      {{- if eq .Values.scheduling.spread "require" }}
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{ $job.selector | toJson }}
      {{- else }}
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels: {{ $job.selector | toJson }}
      {{- end }}
  {{- end }}
  containers:
    - name: pytorch
      image: {{ $job.image | toJson }}
      {{- if $job.trainerNames }}
      command:
        {{- range list "python3" "-c" (.Files.Get "files/launcher.py") "/var/run/kitctl.dev/trainer" (include "training-job.trainerDigest" .) (toString $job.kind.exitCodes.fatal) }}
        - {{ include "training-job.literal" . }}
        {{- end }}
      {{- end }}
      args: # without a command, the image's entrypoint is an init
        {{- range concat (empty $job.trainerNames | ternary (list "python" "-P" "-m") list) (list "kittrain.agent" "--") .Values.command .Values.args }}
        - {{ include "training-job.literal" . }}
        {{- end }}
      {{- if or .Values.sources .Values.code.digest }}
      workingDir: /workspace
      {{- end }}
      ports:
        - name: pytorchjob-port
          containerPort: {{ .Values.rendezvous.port | toJson }}
        {{- if .Values.metrics.enabled }}
        - name: kitctl-metrics
          containerPort: {{ .Values.metrics.port | toJson }}
        {{- end }}
      env:
        - name: PET_LOCAL_ADDR
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        - name: KIT_POD
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: KIT_NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        {{- range $name, $path := $job.kind.downwardEnv }}
        - name: {{ $name }}
          valueFrom: {fieldRef: {fieldPath: {{ $path | toJson }}}}
        {{- end }}
        {{- range $name, $text := include "training-job.env" . | fromJson }}
        - name: {{ $name | toJson }}
          value: {{ include "training-job.literal" $text }}
        {{- end }}
        {{- range $name, $reference := .Values.secrets }}
        - name: {{ $name | toJson }}
          valueFrom:
            secretKeyRef:
              name: {{ splitList "/" $reference | first | toJson }}
              key: {{ splitList "/" $reference | last | toJson }}
        {{- end }}
      {{- with .Values.envFrom }}
      envFrom:
        {{- range . }}
        - {{ empty .configMap | ternary "secretRef" "configMapRef" }}:
            name: {{ .configMap | default .secret | toJson }}
          {{- with .prefix }}
          prefix: {{ . | toJson }}
          {{- end }}
        {{- end }}
      {{- end }}
      {{- with include "training-job.resources" . | fromYaml }}
      resources: {{ . | toJson }}
      {{- end }}
      terminationMessagePath: /dev/termination-log
      terminationMessagePolicy: File
      {{- include "training-job.containerSecurity" . | nindent 6 }}
      volumeMounts:
        - name: shm
          mountPath: /dev/shm
        {{- if $job.needsTmp }}
        - name: tmp
          mountPath: /tmp
        {{- end }}
        {{- if $job.secretName }}
        - name: secret
          mountPath: /var/run/secrets/kitctl.dev
          readOnly: true
        {{- end }}
        {{- if .Values.snapshots.enabled }}
        - name: snapshots
          mountPath: {{ .Values.snapshots.path | toJson }}
          {{- if .Values.snapshots.claim }}
          subPath: {{ $job.name | toJson }} # other jobs may use an existing claim, too
          {{- end }}
        {{- end }}
        {{- if $job.trainerNames }}
        - name: trainer
          mountPath: /var/run/kitctl.dev/trainer
          readOnly: true
        - name: unpacked
          mountPath: /var/run/kitctl.dev/unpacked
        {{- end }}
        {{- if .Values.sources }}
        - name: sources
          mountPath: /workspace
          readOnly: true
        {{- end }}
        {{- if .Values.code.digest }}
        - name: workspace
          mountPath: /workspace
        - name: {{ empty .Values.code.configMap | ternary "snapshots" "sources" }}
          mountPath: /var/run/kitctl.dev/code
          {{- if not .Values.code.configMap }}
          subPath: .kitctl-code
          {{- end }}
          readOnly: true
        {{- end }}
        {{- with .Values.code.requirements }}
        - name: {{ empty .configMap | ternary "snapshots" "requirements" }}
          mountPath: /var/run/kitctl.dev/requirements
          {{- if not .configMap }}
          subPath: .kitctl-code
          {{- end }}
          readOnly: true
        {{- end }}
        {{- range $number, $volume := .Values.volumes }}
        - name: volume-{{ $number }}
          mountPath: {{ .mountPath | toJson }}
          {{- if .readOnly }}
          readOnly: true
          {{- end }}
        {{- end }}
  volumes:
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ .Values.sharedMemory | toJson }}}
    {{- if $job.needsTmp }}
    - name: tmp
      emptyDir: {}
    {{- end }}
    {{- with $job.secretName }}
    - name: secret
      secret: {secretName: {{ . | toJson }}, optional: true}
    {{- end }}
    {{- if $job.sharesSnapshots }}
    - name: snapshots
      persistentVolumeClaim: {claimName: {{ $job.claim | toJson }}}
    {{- else if $job.snapshotsInMemory }}
    - name: snapshots
      emptyDir: {medium: Memory, sizeLimit: {{ .Values.snapshots.size | toJson }}}
    {{- else if .Values.snapshots.enabled }}
    - name: snapshots
      ephemeral:
        volumeClaimTemplate:
          spec:
            accessModes: [ReadWriteOnce]
            {{- with .Values.snapshots.storageClass }}
            storageClassName: {{ . | toJson }}
            {{- end }}
            resources:
              requests:
                storage: {{ .Values.snapshots.size | toJson }}
    {{- end }}
    {{- with $job.trainerNames }}
    - name: trainer
      projected:
        sources:
          {{- range . }}
          - configMap: {name: {{ . | toJson }}}
          {{- end }}
    - name: unpacked
      emptyDir: {medium: Memory, sizeLimit: 32Mi}
    {{- end }}
    {{- with .Values.sources }}
    - name: sources
      configMap:
        name: {{ $job.sourcesName | toJson }}
        items:
          {{- range $path, $_ := . }}
          - key: {{ include "training-job.sourceKey" $path | toJson }}
            path: {{ $path | toJson }}
          {{- end }}
    {{- end }}
    {{- if .Values.code.digest }}
    - name: workspace
      emptyDir: {}
    {{- with .Values.code.configMap }}
    - name: sources
      configMap: {name: {{ . | toJson }}}
    {{- end }}
    {{- end }}
    {{- with .Values.code.requirements }}
    {{- with .configMap }}
    - name: requirements
      configMap: {name: {{ . | toJson }}}
    {{- end }}
    {{- end }}
    {{- range $number, $volume := .Values.volumes }}
    - name: volume-{{ $number }}
      {{- if .claim }}
      persistentVolumeClaim: {claimName: {{ .claim | toJson }}}
      {{- else if .configMap }}
      configMap: {name: {{ .configMap | toJson }}}
      {{- else if .secret }}
      secret: {secretName: {{ .secret | toJson }}}
      {{- else if .hostPath }}
      hostPath: {path: {{ .hostPath | toJson }}}
      {{- else if .csi }}
      csi: {{ .csi | toJson }}
      {{- else }}
      emptyDir: {sizeLimit: {{ .emptyDir | toJson }}}
      {{- end }}
    {{- end }}
{{- end }}

{{/* A toleration without the fields that have Kubernetes' defaults, as JSON. */}}
{{- define "training-job.toleration" -}}
{{- $toleration := dict }}
{{- range $key, $value := . }}
{{- if not (has $value (list "" "Equal")) }}
{{- $_ := set $toleration $key $value }}
{{- end }}
{{- end }}
{{- toJson $toleration }}
{{- end }}

{{- define "training-job.podSecurity" -}}
{{- if eq .Values.security.profile "restricted" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.security.runAsUser | toJson }}
  fsGroup: {{ .Values.security.fsGroup | toJson }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- end }}

{{- define "training-job.containerSecurity" -}}
{{- if eq .Values.security.profile "restricted" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: {{ .Values.security.readOnlyRoot }}
  capabilities: {drop: [ALL]}
{{- end }}
{{- end }}

{{/* The configured resources, the GPUs in both parts, and default requests for what neither part names. */}}
{{- define "training-job.resources" -}}
{{- $gpus := dict }}
{{- if int .Values.gpusPerNode }}
{{- $gpus = dict .Values.gpuResource (int64 .Values.gpusPerNode | toString) }}
{{- end }}
{{- $limits := merge (deepCopy .Values.resources.limits) $gpus }}
{{- $defaults := dict "cpu" "100m" "memory" "512Mi" }}
{{- range $name, $_ := $limits }}
{{- $defaults = omit $defaults $name }}
{{- end }}
{{- $requests := merge (deepCopy .Values.resources.requests) $gpus $defaults }}
{{- if (include "training-job.job" . | fromJson).snapshotsInMemory }}
{{- range list $requests $limits }}
{{- if .memory }}
{{- $_ := set . "memory" (include "training-job.sum" (list .memory $.Values.snapshots.size)) }}
{{- end }}
{{- end }}
{{- end }}
{{- with $requests }}
requests: {{ . | toJson }}
{{- end }}
{{- with $limits }}
limits: {{ . | toJson }}
{{- end }}
{{- end }}

{{/* The sum of amounts of memory: in MiB if that is a whole number, else in bytes. */}}
{{- define "training-job.sum" -}}
{{- $factors := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "P" 1000000000000000 "E" 1000000000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 }}
{{- $total := 0 }}
{{- range . }}
{{- $unit := regexFind "[kMGTPE]i?$" (toString .) }}
{{- $total = add $total (mulf (trimSuffix $unit (toString .) | float64) (get $factors $unit) | int64) }}
{{- end }}
{{- if mod $total 1048576 }}{{ $total }}{{ else }}{{ div $total 1048576 }}Mi{{ end }}
{{- end }}
