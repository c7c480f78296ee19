# A Debian with some of its packages: each of its releases has another Python, and another torch.
ARG SUITE
FROM kitctl/debian:${SUITE}
ARG PACKAGES
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ${PACKAGES} >/dev/null \
    && rm -rf /var/lib/apt/lists/*
# As in torch-cpu.Dockerfile.
ENV KIT_AUTO_BACKEND=gloo USE_LIBUV=0 OMPI_MCA_btl=^openib OMP_NUM_THREADS=1
