{{/*
The kinds of job, written by `make docs` from kitctl/kinds: what the other templates need to know about each. What a
field means is in kitctl/kinds/job_kind.py. Each kind's own object is in a template named after it.
*/}}
{{- define "training-job.kinds" -}}
IndexedJob:
  apiVersion: batch/v1
  resource: Job
  plural: jobs
  container: pytorch
  randomSuffix: 0
  fixedSize: ''
  inQueues: true
  queueAdmitsFewer: true
  headlessService: true
  subdomain: false
  setsTorchrunEnv: false
  podsKnowUid: true
  restartPolicy: Never
  exitCodes:
    done: 0
    drained: 75
    retryable: 76
    fatal: 78
  downwardEnv:
    KIT_NODE_INDEX: metadata.annotations['batch.kubernetes.io/job-completion-index']
    PET_RDZV_ID: metadata.labels['batch.kubernetes.io/controller-uid']
  podName: '%s-%d'
TrainJob:
  apiVersion: trainer.kubeflow.org/v1alpha1
  resource: TrainJob
  plural: trainjobs
  container: node
  randomSuffix: 6
  fixedSize: the number of nodes of a TrainJob cannot be changed
  inQueues: false
  queueAdmitsFewer: false
  headlessService: false
  subdomain: true
  setsTorchrunEnv: true
  podsKnowUid: true
  restartPolicy: ''
  exitCodes:
    done: 0
    drained: 75
    retryable: 76
    fatal: 78
  downwardEnv:
    KIT_NODE_INDEX: metadata.annotations['batch.kubernetes.io/job-completion-index']
    PET_RDZV_ID: metadata.labels['jobset.sigs.k8s.io/jobset-uid']
  podName: '%s-node-0-%d'
  runtime: kitctl-submit
  elasticRuntime: kitctl-submit-elastic
  problems: training-job.runtimeProblems
JobSet:
  apiVersion: jobset.x-k8s.io/v1alpha2
  resource: JobSet
  plural: jobsets
  container: pytorch
  randomSuffix: 6
  fixedSize: the number of nodes of a JobSet cannot be changed
  inQueues: true
  queueAdmitsFewer: false
  headlessService: true
  subdomain: false
  setsTorchrunEnv: false
  podsKnowUid: true
  restartPolicy: Never
  exitCodes:
    done: 0
    drained: 75
    retryable: 76
    fatal: 78
  downwardEnv:
    KIT_NODE_INDEX: metadata.annotations['batch.kubernetes.io/job-completion-index']
    PET_RDZV_ID: metadata.labels['jobset.sigs.k8s.io/jobset-uid']
  podName: '%s-node-0-%d'
PyTorchJob:
  apiVersion: kubeflow.org/v1
  resource: PyTorchJob
  plural: pytorchjobs
  container: pytorch
  randomSuffix: 0
  fixedSize: ''
  inQueues: true
  queueAdmitsFewer: false
  headlessService: false
  subdomain: false
  setsTorchrunEnv: true
  podsKnowUid: false
  restartPolicy: ''
  exitCodes:
    done: 0
    drained: 143
    retryable: 144
    fatal: 78
  downwardEnv:
    KIT_NODE_INDEX: metadata.labels['training.kubeflow.org/replica-index']
  podName: '%s-worker-%d'
{{- end }}

{{/* The job's kind, as JSON: its line of the table, and its name. */}}
{{- define "training-job.kind" -}}
{{- $name := eq .Values.kind "auto" | ternary "IndexedJob" .Values.kind }}
{{- get (include "training-job.kinds" . | fromYaml) $name | merge (dict "name" $name) | toJson }}
{{- end }}
