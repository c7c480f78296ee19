# What people make who have no image of PyTorch's: a small Debian, a virtual environment that is not on the PATH, and
# torch as its wheel from PyPI, with NVIDIA's libraries (6 GB). The `python3` of the PATH has no torch.
FROM kitctl/debian:bookworm
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates python3 python3-venv \
         >/dev/null \
    && rm -rf /var/lib/apt/lists/*
# Certificates that this machine trusts, such as a proxy's.
COPY ca-certificates.crt /etc/ssl/certs/
RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install --quiet --no-cache-dir torch numpy
ENV KIT_AUTO_BACKEND=gloo OMP_NUM_THREADS=1
