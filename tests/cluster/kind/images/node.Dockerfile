# A kind node: the files of kind's own base image, with Debian's containerd, runc and network plugins.
FROM kitctl/debian:bookworm
# pigz: containerd unpacks pulled layers with it, faster than by itself.
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      ca-certificates conntrack containerd containernetworking-plugins curl dbus ethtool hostname iproute2 iptables \
      jq kmod mount nfs-common nftables pigz procps runc systemd util-linux >/dev/null \
    && rm -rf /var/lib/apt/lists/*
COPY files/ /
COPY runc-narrow /usr/local/sbin/runc
COPY kubeadm kubelet kubectl /usr/bin/
ARG KUBERNETES
ARG PAUSE
# As kind's own build does it: no systemd units but those a node needs.
RUN chmod 755 /usr/local/bin/* /kind/bin/* \
    && cd /lib/systemd/system \
    && rm -f sysinit.target.wants/systemd-tmpfiles-setup.service multi-user.target.wants/* local-fs.target.wants/* \
         basic.target.wants/* /etc/systemd/system/*.wants/* sockets.target.wants/*udev* sockets.target.wants/*initctl* \
    && echo ReadKMsg=no >> /etc/systemd/journald.conf \
    # For kubelet and containerd: less collecting of garbage for more memory.
    && echo DefaultEnvironment=GOGC=400 >> /etc/systemd/system.conf \
    && ln -sf /lib/systemd/systemd /sbin/init \
    && systemctl enable kubelet.service containerd.service undo-mount-hacks.service \
    && systemctl mask systemd-binfmt.service \
    # kind's units name these paths; Debian's packages put the programs elsewhere.
    && ln -sf /usr/bin/containerd /usr/bin/ctr /usr/bin/containerd-shim-runc-v2 /usr/local/bin/ \
    && mkdir -p /opt/cni /etc/kubernetes/manifests /kind/manifests \
    && ln -sfn /usr/lib/cni /opt/cni/bin \
    # Not kind's hook, which hides this machine's serial number from containers at a thirtieth of a second for each.
    && ctr oci spec | jq 'del(.process.rlimits)' > /etc/containerd/cri-base.json \
    # containerd would try to reach this one a hundred times per second.
    && sed -i '/^\[proxy_plugins\]/,/^$/d' /etc/containerd/config.toml \
    && sed -i "s#sandbox_image = .*#sandbox_image = \"$PAUSE\"#" /etc/containerd/config.toml \
    && printf %s "$KUBERNETES" > /kind/version
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
