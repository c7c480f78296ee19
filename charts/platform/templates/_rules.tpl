{{/* Rules of the roles. Those of users and readers are kitctl/targets/cluster/checks/rights.py, which says what for. */}}

{{- define "platform.userRules" -}}
- apiGroups: [batch]
  resources: [jobs]
  verbs: &jobs [get, list, create, patch, delete]
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs]
  verbs: *jobs
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: *jobs
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs]
  verbs: *jobs
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, patch]
- apiGroups: [""]
  resources: [services, secrets, serviceaccounts]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, patch]
- apiGroups: [rbac.authorization.k8s.io] # a role for each job; nobody can give others more than they have themselves
  resources: [roles, rolebindings]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, create, delete]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [""]
  resources: [pods/exec, pods/portforward]
  verbs: [get, create]
- apiGroups: [""]
  resources: [events, limitranges, resourcequotas]
  verbs: [list]
- apiGroups: [scheduling.x-k8s.io, scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [get, list, create, patch]
- apiGroups: [kueue.x-k8s.io]
  resources: [localqueues]
  verbs: [get, list]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, patch, delete]
- apiGroups: [visibility.kueue.x-k8s.io]
  resources: [localqueues/pendingworkloads]
  verbs: [get]
{{- end }}

{{- define "platform.readerRules" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [list]
- apiGroups: [trainer.kubeflow.org]
  resources: [clustertrainingruntimes]
  verbs: [get]
- apiGroups: [kueue.x-k8s.io]
  resources: [clusterqueues, workloadpriorityclasses]
  verbs: [get, list]
- apiGroups: [kueue.x-k8s.io]
  resources: [cohorts]
  verbs: [get]
{{- end }}

{{/* What those who run the platform change besides: what this chart installs, and what bounds a namespace. */}}
{{- define "platform.adminRules" -}}
- apiGroups: [kueue.x-k8s.io]
  resources: [clusterqueues, cohorts, localqueues, resourceflavors, topologies, workloadpriorityclasses, workloads]
  verbs: &all [get, list, watch, create, update, patch, delete]
- apiGroups: [visibility.kueue.x-k8s.io]
  resources: [clusterqueues/pendingworkloads]
  verbs: [get]
- apiGroups: [trainer.kubeflow.org]
  resources: [clustertrainingruntimes, trainingruntimes]
  verbs: *all
- apiGroups: [""]
  resources: [persistentvolumeclaims, limitranges, resourcequotas]
  verbs: *all
- apiGroups: [rbac.authorization.k8s.io] # to let others in, with these roles or fewer rights
  resources: [rolebindings]
  verbs: *all
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
{{- end }}
