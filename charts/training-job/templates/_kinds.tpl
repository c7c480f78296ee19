{{/*
The kinds of job, equal to kitctl/kinds: what the other templates need to know about each. Each kind's own object is in
a template named after it.
*/}}
{{- define "training-job.kinds" -}}
IndexedJob:
  apiVersion: batch/v1
  resource: Job
  plural: jobs
  podName: "%s-%d" # of a job's name and a node's index: the host name
  fixedSize: "" # why the number of nodes of an existing job cannot be changed
  inQueues: true # whether it may wait in a queue of Kueue
  headlessService: true # nodes get their DNS names from a Service of the job
  setsTorchrunEnv: false # whether the controller sets PET_*
  podsKnowUid: true # whether pods bear the job's uid; agents ask the API server for it otherwise
  restartPolicy: Never # of the pods; empty: the controller sets it
  queueAdmitsFewer: true # whether Kueue may start an elastic job with fewer nodes, and scale it while it runs
  exitCodes: {done: 0, drained: 75, retryable: 76, fatal: 78}
  downwardEnv:
    KIT_NODE_INDEX: metadata.annotations['batch.kubernetes.io/job-completion-index']
    PET_RDZV_ID: metadata.labels['batch.kubernetes.io/controller-uid']
TrainJob:
  apiVersion: trainer.kubeflow.org/v1alpha1
  resource: TrainJob
  plural: trainjobs
  podName: "%s-node-0-%d"
  randomSuffix: 6 # characters that names need besides
  fixedSize: the number of nodes of a TrainJob cannot be changed
  inQueues: false # whether it may wait in a queue
  runtime: kitctl-submit # the cluster training runtime that it refers to
  elasticRuntime: kitctl-submit-elastic # of an elastic job
  problems: training-job.runtimeProblems # what the kind has no place for
  container: node
  headlessService: false
  subdomain: true # the controller's Service is named after the job
  setsTorchrunEnv: true
  podsKnowUid: true
  restartPolicy: ""
  exitCodes: {done: 0, drained: 75, retryable: 76, fatal: 78}
  downwardEnv:
    KIT_NODE_INDEX: metadata.annotations['batch.kubernetes.io/job-completion-index']
    PET_RDZV_ID: metadata.labels['jobset.sigs.k8s.io/jobset-uid']
JobSet:
  apiVersion: jobset.x-k8s.io/v1alpha2
  resource: JobSet
  plural: jobsets
  podName: "%s-node-0-%d"
  randomSuffix: 6 # characters that names need besides
  fixedSize: the number of nodes of a JobSet cannot be changed
  inQueues: true
  headlessService: true
  setsTorchrunEnv: false
  podsKnowUid: true
  restartPolicy: Never
  exitCodes: {done: 0, drained: 75, retryable: 76, fatal: 78}
  downwardEnv:
    KIT_NODE_INDEX: metadata.annotations['batch.kubernetes.io/job-completion-index']
    PET_RDZV_ID: metadata.labels['jobset.sigs.k8s.io/jobset-uid']
PyTorchJob:
  apiVersion: kubeflow.org/v1
  resource: PyTorchJob
  plural: pytorchjobs
  podName: "%s-worker-%d"
  inQueues: true
  headlessService: false
  setsTorchrunEnv: true
  podsKnowUid: false
  restartPolicy: ""
  queueAdmitsFewer: false
  exitCodes: {done: 0, drained: 143, retryable: 144, fatal: 78} # the operator restarts pods for 128 and above only
  downwardEnv:
    KIT_NODE_INDEX: metadata.labels['training.kubeflow.org/replica-index']
{{- end }}

{{/* The job's kind, as JSON: its line of the table, and its name. */}}
{{- define "training-job.kind" -}}
{{- $name := eq .Values.kind "auto" | ternary "IndexedJob" .Values.kind }}
{{- get (include "training-job.kinds" . | fromYaml) $name | merge (dict "name" $name) | toJson }}
{{- end }}
