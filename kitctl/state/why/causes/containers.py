"""Causes between a pod's volumes and the start of its container: the machine's network, runtime and driver. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule, quoted

CONTAINERS: Final = Family(
    "Machines and their container runtime",
    "Pending",
    (
        Rule(
            "pod-network-no-free-address",
            r"FailedCreatePodSandBox\b"
            r".*?(?:no IP addresses available|failed to assign an IP|InsufficientFreeAddresses)",
            "the machine's network has no address left for the pod",
            "nothing, if other pods end there; else fewer pods a machine, or a larger range of the network plugin",
        ),
        Rule(
            "container-runtime-not-found",
            r"no runtime for \"([^\"]+)\" is configured|RuntimeClass \"?([\w.-]+)\"? not found",
            "the machine has no container runtime of the name that the pod's runtimeClassName asks for",
            "install it there (nvidia: NVIDIA's container toolkit, or its GPU operator), or leave runtimeClassName out",
        ),
        Rule(
            "pod-sandbox-failed",
            r"FailedCreatePodSandBox\b",
            "",
            "nothing, if it passes; else the machine's network plugin or runtime is faulty: see its pods in "
            "kube-system, kubectl cordon the machine, and kitctl restart",
            seen="FailedCreatePodSandBox: Failed to create pod sandbox: ...",
        ),
        Rule(
            "nvidia-driver-too-old",
            r"nvidia-container-cli: requirement error: unsatisfied condition: ([^,\s]+)",
            "the machine's NVIDIA driver is too old for the image: it needs {0}",
            "an image with an older CUDA, machines with a newer driver, or --env NVIDIA_DISABLE_REQUIRE=1 where CUDA's "
            "compatibility allows it",
        ),
        Rule(
            "nvidia-container-toolkit-failed",
            r"nvidia-container-cli: ",
            "the machine's NVIDIA driver, or its container toolkit, does not work",
            "nvidia-smi on that machine (HOST in kitctl status) shows it; kubectl cordon it, and kitctl restart",
        ),
        quoted(
            "container-start-failed",
            r"(?:CreateContainerError|RunContainerError|StartError|ContainerCannotRun): ",
            "the machine's runtime cannot start the container: what it names is missing in the image, or the machine "
            "is overloaded: kubectl cordon it, and kitctl restart",
            "CreateContainerError: context deadline exceeded",
        ),
    ),
    of_ranks=False,
)
