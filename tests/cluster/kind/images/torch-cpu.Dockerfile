# PyTorch without CUDA, the base of the trainer image: Debian's packages, because PyPI's wheels for Linux need CUDA.
FROM kitctl/debian:sid
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
         ca-certificates python-is-python3 python3-numpy python3-pip python3-torch python3-torchvision >/dev/null \
    && rm -rf /var/lib/apt/lists/* \
    # 300 MB for AMD's GPUs and torch's own C++ tests. As files: without the packages apt would call itself broken.
    && rm -rf /usr/lib/x86_64-linux-gnu/libLLVM* /usr/lib/x86_64-linux-gnu/libamd_comgr* \
         /usr/lib/x86_64-linux-gnu/libamdhip64* /usr/lib/libtorch-test
# Certificates that this machine trusts, such as a proxy's.
COPY ca-certificates.crt /etc/ssl/certs/
# No GPU will ever be visible here, so `backend: auto` means gloo. Debian builds torch without libuv. All nodes of the
# test cluster are one machine: a rank that took a thread for each of its cores would take them from the others.
ENV KIT_AUTO_BACKEND=gloo USE_LIBUV=0 OMPI_MCA_btl=^openib OMP_NUM_THREADS=1
RUN python3 -c 'import torch.distributed as d, torchvision; assert d.is_gloo_available()'
