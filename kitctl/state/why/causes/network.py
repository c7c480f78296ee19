"""Causes in network and GPUs. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

NETWORK: Final = Family(
    "Network and GPUs",
    "Starting",
    (
        Rule(
            "fewer-gpus-than-requested",
            r"^\s*(?:node \d+: )?(\d+ GPUs?) requested, but (\d+) visible",
            "{0} requested, and torch sees {1}",
            "check the image's build of torch, and the node's driver and device plugin; or ask for as many as there "
            "are: gpusPerNode",
            local="--gpus-per-node {1}; if this machine has more, check its driver with nvidia-smi, and torch's build",
        ),
        Rule(
            "torch-built-without-cuda",
            r"Torch not compiled with CUDA",
            "the script wants a GPU, and this torch was built without CUDA",
            "use an image whose torch is built with CUDA (--image), requirements that keep it, and --gpus-per-node N; "
            "or let the script use device='cpu'",
            local="let the script use device='cpu'; if this machine has GPUs, install a torch that is built with CUDA",
        ),
        Rule(
            "device-name-invalid",
            r"(?:at start of device|Invalid device) string: '?([\w:.-]+)",
            "torch knows no device {0}",
            "'cuda' is this rank's GPU, whoever made it, 'cuda:0' the first of its node; 'cpu' needs none",
        ),
        Rule(
            "nvidia-driver-not-found",
            r"Found no NVIDIA driver|(?:libcuda|libnvidia-ml)\.so",
            "the script wants a GPU, and torch finds no NVIDIA driver",
            "request GPUs (--gpus-per-node N) on nodes with the driver and NVIDIA's container runtime; or let the "
            "script use device='cpu'",
            local="let the script use device='cpu'; if this machine has GPUs, --gpus-per-node N, and check its driver",
        ),
        Rule(
            "network-interface-not-found",
            r"Unable to find address for: ([\w-]+)",
            "the node has no network interface {0}",
            "leave out --interface and GLOO_SOCKET_IFNAME, or name one that `ip link` lists on each node",
        ),
        Rule(
            "nccl-network-interface-not-found",
            r"Bootstrap : no socket interface found",
            "NCCL finds none of the network interfaces that it may use",
            "leave out --interface and NCCL_SOCKET_IFNAME, or name one that `ip link` lists on each node",
        ),
    ),
)
