"""A real Kubernetes cluster for the tests, on a bare machine: ``python3 -m tests.cluster.kind up``.

kind's nodes are docker containers, so three workers fit on one machine. Without an image registry, the node image, the
control plane and the add-ons are built from Go modules and Debian packages. Standard library only: this runs before
anything of the project is installed.

    settings    names, folders, sizes, pinned versions
    steps       running a step: its log, its duration, and recording finished work
    host        requirements of the machine itself: a few Debian packages and a docker daemon
    programs    the Go programs
    images      the container images
    cluster     nodes, pod network, registry, simulated GPUs
    addons      storage class, DNS domain, controllers of kinds of job, Kueue
"""
