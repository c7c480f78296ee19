# What kubeadm wants as images. Layers are shared, and a worker unpacks no more than its pods need.
FROM kitctl/debian:bookworm AS base
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends catatonit conntrack iptables kmod nftables >/dev/null \
    && rm -rf /var/lib/apt/lists/*
# Less collecting of garbage for more memory.
ENV GOGC=400

FROM base AS pause
ENTRYPOINT ["catatonit", "-P"]

FROM base AS kube-proxy
COPY kube-proxy /usr/local/bin/

FROM base AS coredns
COPY coredns /usr/local/bin/
ENTRYPOINT ["coredns"]

FROM base AS control-plane
COPY kube-apiserver kube-controller-manager kube-scheduler etcd /usr/local/bin/
