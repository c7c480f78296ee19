"""The Go programs, built from the module proxy at pinned versions into ``BIN``."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster.kind.settings import (
    ACTIONLINT,
    BIN,
    COREDNS,
    ETCD,
    HELM,
    JOBSET,
    KIND,
    KUBERNETES,
    KUEUE,
    SCHEDULER_PLUGINS,
    STATE,
    STERN,
    TRAINER,
    TRAINING_OPERATOR,
    VERSITYGW,
)
from tests.cluster.kind.steps import digest, finish, finished, read, run

_VERSION: Final = "k8s.io/component-base/version"
# toolchain: never fetch another Go. -mod=mod: the versions that the program's own go.mod pins.
# GOGC: a third of what a compiler takes is the collection of garbage that its end would free as well.
GO_ENV: Final = {
    "CGO_ENABLED": "0",
    "GOTOOLCHAIN": "local",
    "GOFLAGS": "-mod=mod -buildvcs=false",
    "GOGC": "off",
    "GOMEMLIMIT": "2GiB",
}


@dataclass(frozen=True, kw_only=True)
class Module:
    """A Go module and the programs that are built from it.

    Attributes:
        path: of the module.
        version: of the module.
        programs: name -> package, relative to the module.
        variables: set by the linker.
        main: the source of the only program, instead of a package of the module.
    """

    path: str
    version: str
    programs: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    main: str = ""


# Of CoreDNS's plugins, those of kubeadm's Corefile: most of its build are the libraries of clouds that others need.
COREDNS_PLUGINS: Final = (
    "cache",
    "errors",
    "forward",
    "health",
    "kubernetes",
    "loadbalance",
    "loop",
    "metrics",
    "ready",
    "reload",
)
COREDNS_MAIN: Final = "\n".join(
    [
        'package main\n\nimport (\n\t"github.com/coredns/coredns/coremain"',
        *(f'\t_ "github.com/coredns/coredns/plugin/{name}"' for name in COREDNS_PLUGINS),
        ")\n\nfunc main() { coremain.Run() }\n",
    ]
)

MODULES: Final = {
    "kind": Module(path="sigs.k8s.io/kind", version=KIND, programs={"kind": ""}),
    "kubernetes": Module(
        path="k8s.io/kubernetes",
        version=KUBERNETES,
        programs={
            name: f"/cmd/{name}"
            for name in (
                "kubeadm",
                "kubelet",
                "kubectl",
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kube-proxy",
            )
        },
        variables={
            f"{_VERSION}.gitVersion": KUBERNETES,
            f"{_VERSION}.gitMajor": KUBERNETES.split(".")[0].removeprefix("v"),
            f"{_VERSION}.gitMinor": KUBERNETES.split(".")[1],
        },
    ),
    "etcd": Module(path="go.etcd.io/etcd/server/v3", version=ETCD, programs={"etcd": ""}),
    "coredns": Module(path="github.com/coredns/coredns", version=COREDNS, programs={"coredns": ""}, main=COREDNS_MAIN),
    "training-operator": Module(
        path="github.com/kubeflow/training-operator",
        version=TRAINING_OPERATOR,
        programs={"training-operator": "/cmd/training-operator.v1"},
    ),
    "kueue": Module(
        path="sigs.k8s.io/kueue",
        version=KUEUE,
        programs={"kueue": "/cmd/kueue"},
        variables={"sigs.k8s.io/kueue/pkg/version.GitVersion": KUEUE},  # without, its API for positions serves nothing
    ),
    "scheduler-plugins": Module(path="sigs.k8s.io/scheduler-plugins", version=SCHEDULER_PLUGINS, programs={}),
    "jobset": Module(path="sigs.k8s.io/jobset", version=JOBSET, programs={"jobset": ""}),
    "trainer": Module(
        path="github.com/kubeflow/trainer/v2", version=TRAINER, programs={"trainer": "/cmd/trainer-controller-manager"}
    ),
    "helm": Module(
        path="helm.sh/helm/v3",
        version=HELM,
        programs={"helm": "/cmd/helm"},
        variables={"helm.sh/helm/v3/internal/version.version": HELM},
    ),
    "actionlint": Module(
        path="github.com/rhysd/actionlint", version=ACTIONLINT, programs={"actionlint": "/cmd/actionlint"}
    ),
    "versitygw": Module(
        path="github.com/versity/versitygw", version=VERSITYGW, programs={"versitygw": "/cmd/versitygw"}
    ),
    "stern": Module(path="github.com/stern/stern", version=STERN, programs={"stern": ""}),
}


# Programs that may be this machine's own, and the arguments with which they tell their version.
VERSIONS: Final = {"kind": ("version",), "helm": ("version", "--short")}


def on_path(name: str, path: str = os.environ["PATH"]) -> str | None:
    """A program of this machine with the major and minor version that is pinned here; None if there is none."""
    found = shutil.which(name, path=os.pathsep.join(one for one in path.split(os.pathsep) if one != str(BIN)))
    if found is None:
        return None
    try:
        told = subprocess.run([found, *VERSIONS[name]], check=False, capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"v\d+\.\d+\.", told)
    return found if version and MODULES[name].version.startswith(version[0]) else None


def is_built(name: str) -> bool:
    """Whether a module's programs exist, in its pinned version and built by this Go."""
    return finished(f"built-{name}", _key(name)) and all((BIN / program).exists() for program in MODULES[name].programs)


def _key(name: str) -> str:
    return digest(repr(MODULES[name]), read("go", "env", "GOVERSION"))


def build(name: str) -> None:
    """Build a module's programs, unless they exist already, here or in a fitting version on this machine's PATH."""
    if is_built(name):
        return
    module = MODULES[name]
    BIN.mkdir(parents=True, exist_ok=True)
    for program in module.programs:
        (BIN / program).unlink(missing_ok=True)  # it may be a link to a program that no longer fits
    if name in VERSIONS and (found := on_path(name)):
        (BIN / name).symlink_to(found)  # without a stamp: its version is asked for again next time
        return
    folder = STATE / "go" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text(_go_mod(name, module), encoding="utf-8")
    if module.main:
        (folder / "main.go").write_text(module.main, encoding="utf-8")
    flags = " ".join(["-s -w", *(f"-X {variable}={value}" for variable, value in module.variables.items())])
    targets = ["."] if module.main else [module.path + package for package in module.programs.values()]
    # Several programs are named like their packages, and built at once: one is linked while another is compiled.
    output = f"{BIN}/" if len(module.programs) > 1 else BIN / next(iter(module.programs))
    command = ("nice", "go", "build", "-trimpath", "-ldflags", flags, "-o", output, *targets)
    run(*command, cwd=folder, env=GO_ENV)  # nice: tests may run at the same time
    shutil.rmtree(folder)
    finish(f"built-{name}", _key(name))


def _go_mod(name: str, module: Module) -> str:
    """A new module that requires the program's, whose own ``replace`` lines then do not apply.

    With those, ``go install PROGRAM@VERSION`` fails. Kubernetes still needs some: it requires its staging modules as
    v0.0.0 and replaces them by folders; they are published as v0.<minor>.<patch>.
    """
    upstream = Path(_download(module)["GoMod"]).read_text(encoding="utf-8")
    go = re.search(r"^go .*$", upstream, re.MULTILINE)
    staging = sorted(set(re.findall(r"(k8s\.io/[a-z0-9-]+) v0\.0\.0$", upstream, re.MULTILINE)))
    published = module.version.replace("v1", "v0", 1)
    replaced = [f"replace {path} => {path} {published}" for path in staging]
    return "\n".join(
        [f"module build.local/{name}", go[0] if go else "", f"require {module.path} {module.version}", *replaced]
    )


def source(name: str) -> Path:
    """The folder with a module's own files, read-only."""
    return Path(_download(MODULES[name])["Dir"])


def _download(module: Module) -> dict[str, str]:
    found: dict[str, str] = json.loads(read("go", "mod", "download", "-json", f"{module.path}@{module.version}"))
    return found
