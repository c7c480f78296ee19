{{/*
The defaults of all that agents and ranks are told, as JSON, written by `make docs` from trainer/kitjob: what differs
from them is in the document (`training-job.document`).
*/}}
{{- define "training-job.defaults" -}}
{
  "version": 2,
  "limit": 98304,
  "image": "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime",
  "exitCodes": {
    "done": 0,
    "drained": 75,
    "retryable": 76,
    "fatal": 78
  },
  "run": {
    "kitctl": "",
    "rendezvousHost": "127.0.0.1",
    "rendezvousPort": 29400,
    "owner": "",
    "secretFile": "",
    "secretName": "",
    "restartInPlace": false,
    "logDir": "",
    "report": ""
  },
  "job": {
    "name": "",
    "namespace": "",
    "trainer": "auto",
    "nodes": 1,
    "spares": 0,
    "gpusPerNode": 0,
    "procsPerNode": "auto",
    "outputs": "",
    "resume": false,
    "fromScratch": false,
    "virtualRanks": 0,
    "backend": "auto",
    "nccl": {
      "interface": ""
    },
    "rendezvous": {
      "joinTimeout": "15m",
      "lastCall": "3s"
    },
    "snapshots": {
      "storage": "claim",
      "mirror": "",
      "mirrorTimeout": "30m",
      "everySteps": 100,
      "every": null,
      "copy": true,
      "modelFile": true,
      "memoryEverySteps": null,
      "keep": 3,
      "keepEvery": null,
      "keepBest": ""
    },
    "policy": {
      "maxRestarts": 3,
      "gracePeriod": "60s",
      "hangTimeout": "auto",
      "lostAfter": "3s",
      "onNonFinite": "warn",
      "survivors": "restart",
      "grow": "auto",
      "growEvery": "30s",
      "interruptionNotice": "",
      "drainTaints": []
    },
    "metrics": {
      "enabled": false,
      "port": 29401,
      "tensorboard": false
    },
    "security": {
      "rendezvousSecret": true
    }
  }
}
{{- end }}
