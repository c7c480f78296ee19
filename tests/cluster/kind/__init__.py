"""A real Kubernetes cluster for the tests, on a bare machine: ``python3 -m tests.cluster.kind up``.

kind's nodes are docker containers, so three workers fit on one machine. Where no image registry is in reach, the
node image, the control plane and the add-ons are built from Go modules and Debian packages. Standard library only:
this runs before anything of the project is installed.

    settings    names, folders, sizes, pinned versions
    steps       one step of the work: its log, its seconds, and how finished work is remembered
    host        what the machine itself must have: a few Debian packages and a docker daemon
    programs    the Go programs
    images      the container images
    cluster     nodes, pod network, registry, simulated GPUs
    addons      storage class and training operator
"""
