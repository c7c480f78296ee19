#!/bin/sh
# Provides the volumes of the storage class `shared`: for each claim a folder that all nodes mount. It runs on the
# control plane's node, beside the cluster: provisioners that run in pods start one for each folder.
set -u
export KUBECONFIG=/etc/kubernetes/admin.conf
shared=/kitctl-shared
claims='{.status.phase} {.spec.storageClassName} {.metadata.uid} {.metadata.namespace} {.metadata.name}'
claims="$claims {.spec.resources.requests.storage} {.spec.accessModes}{'\\n'}"

provide() { # provide UID NAMESPACE NAME SIZE MODES
  folder=$shared/pvc-$1_$2_$3
  mkdir -p "$folder"
  chmod 777 "$folder"
  kubectl apply --server-side -f - <<YAML
apiVersion: v1
kind: PersistentVolume
metadata: {name: pvc-$1}
spec:
  storageClassName: shared
  persistentVolumeReclaimPolicy: Retain
  accessModes: $5
  capacity: {storage: "$4"}
  hostPath: {path: "$folder", type: Directory}
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, uid: "$1", namespace: "$2", name: "$3"}
YAML
}

provided='' # claims are reported several times until they are bound
kubectl get persistentvolumeclaims --all-namespaces --watch -o "jsonpath=$claims" |
  while read -r phase class claim; do
    [ "$phase $class" = 'Pending shared' ] || continue
    case $provided in *"$claim"*) continue ;; esac
    # One that fails is tried again: nothing would report that claim once more.
    for attempt in 1 2 3 4 5; do
      provide $claim && provided="$provided $claim" && break
      echo "attempt $attempt failed: $claim"
      sleep 1
    done
  done
