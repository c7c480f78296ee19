"""The container images, from Debian's packages and the Go programs, so that no image registry is needed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from tests.cluster.kind.host import debian_mirror, missing_capabilities, need
from tests.cluster.kind.programs import source
from tests.cluster.kind.settings import (
    BIN,
    HERE,
    KIND_IMAGE,
    KUBERNETES,
    NODE_IMAGE,
    PUBLIC_IMAGE,
    PUBLISHED_NODE,
    REGISTRY,
    STATE,
    TORCH_IMAGE,
)
from tests.cluster.kind.steps import alone, digest, finish, finished, read, run, works

IMAGES: Final = HERE / "images"
KUEUE_IMAGE: Final = f"{REGISTRY}/kitctl/kueue:test"
OPERATOR_IMAGE: Final = f"{REGISTRY}/kitctl/training-operator:test"
CONTROLLERS_IMAGE: Final = f"{REGISTRY}/kitctl/controllers:test"
REGISTRY_IMAGE: Final = "kitctl/registry"
CONTROL_PLANE: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd", "coredns")
CONTROL_PLANE_TARGETS: Final = ("pause", "kube-proxy", "coredns", "control-plane")  # as in control-plane.Dockerfile
_BUILDER: Final = "kitctl-node-build"


def registry_answers() -> bool:
    """Whether published images can be pulled. Checked until node images exist; then the answer stays the same."""
    if KIND_IMAGE:
        return True
    ways = {way: (STATE / "stamp" / f"node-{way}").exists() for way in ("pulled", "built")}
    if any(ways.values()):
        return ways["pulled"]
    return works("docker", "manifest", "inspect", PUBLISHED_NODE, seconds=8)


def image_id(image: str) -> str:
    """An image's id; empty if there is none of that name."""
    return read("docker", "images", "-q", "--no-trunc", image)


def build(name: str, tag: str, *files: Path, target: str = "", **arguments: str) -> None:
    """Build ``images/<name>.Dockerfile`` from these files and folders, and tag it."""
    options = [option for key, value in arguments.items() for option in ("--build-arg", f"{key}={value}")]
    if target:
        options += ["--target", target]
    with _folder(*files) as context:
        run("docker", "build", "-t", tag, *options, "-f", IMAGES / f"{name}.Dockerfile", context)


@contextmanager
def _folder(*files: Path) -> Iterator[Path]:
    """A folder with these files: links, since some are large, or copies from another file system."""
    with tempfile.TemporaryDirectory(dir=STATE, prefix="image-") as name:
        folder = Path(name)
        for file in files:
            if file.is_dir():
                shutil.copytree(file, folder / file.name, copy_function=shutil.copyfile)
                continue
            try:
                os.link(file, folder / file.name)
            except OSError:
                shutil.copy2(file, folder / file.name)
        yield folder


def debian(suite: str, *, published: bool) -> None:
    """A small Debian as the local image ``kitctl/debian:SUITE``."""
    tag = f"kitctl/debian:{suite}"
    if finished(f"debian-{suite}", image_id(tag)):
        return
    if published:
        run("docker", "pull", f"debian:{suite}-slim")
        run("docker", "tag", f"debian:{suite}-slim", tag)
    else:
        _bootstrap(suite, tag)
    finish(f"debian-{suite}", image_id(tag))


def _bootstrap(suite: str, tag: str) -> None:
    need("debootstrap")
    root = STATE / f"root-{suite}"
    shutil.rmtree(root, ignore_errors=True)
    run("debootstrap", "--variant=minbase", suite, root, debian_mirror())
    shutil.copy(IMAGES / "debian.conf", root / "etc/apt/apt.conf.d/90kitctl")
    for unwanted in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(root / unwanted)
        (root / unwanted).mkdir()
    run("sh", "-c", 'tar -C "$1" -c . | docker import --change \'CMD ["bash"]\' - "$2"', "sh", root, tag)
    shutil.rmtree(root)


def built_node() -> None:
    """A node image like kind's own, with the control plane's images in containerd's store."""
    parts = [STATE / "stamp" / f"built-{name}" for name in ("kind", "kubernetes", "etcd", "coredns")]
    key = digest(IMAGES / "node.Dockerfile", IMAGES / "control-plane.Dockerfile", HERE / "runc-narrow", *parts)
    if finished("node-built", key + image_id(NODE_IMAGE)):
        return
    for target in CONTROL_PLANE_TARGETS:
        build(
            "control-plane",
            f"{REGISTRY}/kitctl/kubernetes:{target}",
            *(BIN / name for name in CONTROL_PLANE),
            target=target,
        )
    wanted = read("kubeadm", "config", "images", "list", "--kubernetes-version", KUBERNETES).splitlines()
    build(
        "node",
        "kitctl/node:base",
        source("kind") / "images/base/files",
        HERE / "runc-narrow",
        *(BIN / program for program in ("kubeadm", "kubelet", "kubectl")),
        KUBERNETES=KUBERNETES,
        PAUSE=next(image for image in wanted if "/pause:" in image),
    )
    _preload(wanted)
    finish("node-built", key + image_id(NODE_IMAGE))


def _preload(wanted: list[str]) -> None:
    """Import images with a containerd that runs in a container, and commit that container as the node image."""
    archive = STATE / "control-plane.tar"
    run(
        "docker", "save", "-o", archive, *(f"{REGISTRY}/kitctl/kubernetes:{target}" for target in CONTROL_PLANE_TARGETS)
    )
    run("docker", "rm", "-f", _BUILDER)
    run(
        *("docker", "run", "-d", "--privileged", "--name", _BUILDER, "--entrypoint", "sleep"),
        *("-v", f"{archive}:/control-plane.tar:ro", "kitctl/node:base", "infinity"),
    )
    run("docker", "exec", "-i", _BUILDER, "bash", "-eux", given=_IMPORT.format(tags="\n".join(map(_tag, wanted))))
    entrypoint = 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'
    run("docker", "commit", "-c", entrypoint, _BUILDER, NODE_IMAGE)
    run("docker", "rm", "-f", _BUILDER)
    archive.unlink()


def _tag(image: str) -> str:
    """The command that gives an image the name that kubeadm expects; only for nodes, not this machine's docker."""
    name = image.rpartition("/")[2].partition(":")[0]
    target = name if name in CONTROL_PLANE_TARGETS else "control-plane"
    return f"ctr -n k8s.io images tag {REGISTRY}/kitctl/kubernetes:{target} {image}"


_IMPORT: Final = """
containerd > /tmp/containerd.log 2>&1 &
until ctr version > /dev/null 2>&1; do kill -0 $! || {{ cat /tmp/containerd.log; exit 1; }}; sleep 0.1; done
ctr -n k8s.io images import --no-unpack /control-plane.tar
{tags}
kill $!
wait $! || true
rm /tmp/containerd.log
"""


def published_node() -> None:
    """A published node image, with ``runc-narrow`` if this machine needs it; its kubectl is copied to ``BIN``."""
    image = KIND_IMAGE or PUBLISHED_NODE
    key = image + missing_capabilities()
    if finished("node-pulled", key + image_id(NODE_IMAGE)):
        return
    run("docker", "pull", image)
    lines = [f"FROM {image}"]
    if missing_capabilities():
        lines += ["RUN mv /usr/local/sbin/runc /usr/local/sbin/runc.real", "COPY runc-narrow /usr/local/sbin/runc"]
    with _folder(HERE / "runc-narrow") as context:
        (context / "Dockerfile").write_text("\n".join(lines), encoding="utf-8")
        run("docker", "build", "-t", NODE_IMAGE, context)
    run("sh", "-c", f"docker run --rm --entrypoint cat {NODE_IMAGE} /usr/bin/kubectl > {BIN}/kubectl")
    (BIN / "kubectl").chmod(0o755)
    finish("node-pulled", key + image_id(NODE_IMAGE))


def registry() -> None:
    """A registry's image."""
    build("registry", REGISTRY_IMAGE)


def kueue() -> None:
    """Kueue's image, pushed."""
    key = digest(IMAGES / "kueue.Dockerfile", STATE / "stamp" / "built-kueue")
    if not finished("kueue-image", key + image_id(KUEUE_IMAGE)):
        build("kueue", KUEUE_IMAGE, BIN / "kueue")
        finish("kueue-image", key + image_id(KUEUE_IMAGE))
    push(KUEUE_IMAGE)


def training_operator() -> None:
    """The image of the controller of PyTorchJobs, pushed."""
    build("training-operator", OPERATOR_IMAGE, BIN / "training-operator")
    push(OPERATOR_IMAGE)


def controllers() -> None:
    """The image of the controllers of JobSets and TrainJobs, pushed."""
    build("controllers", CONTROLLERS_IMAGE, BIN / "jobset", BIN / "trainer")
    push(CONTROLLERS_IMAGE)


def torch_cpu() -> None:
    """The CPU base of the trainer image."""
    build("torch-cpu", TORCH_IMAGE, Path("/etc/ssl/certs/ca-certificates.crt"))


@cache
def lacking(what: str) -> str:
    """An image of ``lacking.Dockerfile``, by its digest: built and pushed when a test asks for it."""
    tag = f"{REGISTRY}/kitctl/lacking:{what}"
    build("lacking", tag, target=what, BASE=TORCH_IMAGE)
    push(tag)
    return pushed(tag)


@cache
def with_packages(suite: str, *packages: str) -> str:
    """A Debian release with some of its packages, by its digest: built and pushed when a test asks for it."""
    tag = f"{REGISTRY}/kitctl/{suite}:{digest(*packages)}"
    with alone():
        debian(suite, published=registry_answers())
        build("packages", tag, SUITE=suite, PACKAGES=" ".join(packages))
    push(tag)
    return pushed(tag)


@cache
def with_wheel() -> str:
    """An image with torch as PyPI's wheel, by its digest: built and pushed when a test asks for it."""
    tag = f"{REGISTRY}/kitctl/torch-wheel:bookworm"
    with alone():
        debian("bookworm", published=registry_answers())
        build("wheel", tag, Path("/etc/ssl/certs/ca-certificates.crt"))
    push(tag)
    return pushed(tag)


def push(image: str) -> None:
    """Push an image to the registry; only new layers are transferred."""
    run("docker", "push", "-q", image)


def push_default() -> None:
    """Push that base as the public image that jobs have which name none: nodes find docker.io's images here, too."""
    run("docker", "tag", TORCH_IMAGE, PUBLIC_IMAGE)
    push(PUBLIC_IMAGE)


@cache
def pushed(image: str) -> str:
    """A pushed image by its digest. With a tag, nodes would keep using an older image of that name."""
    return read("docker", "image", "inspect", "-f", "{{index .RepoDigests 0}}", image)
