# The trainer image: a base with torch, plus three megabytes: this kit and an init.
#
#     docker build -t REGISTRY/trainer:VERSION .
#     docker build -t REGISTRY/trainer:VERSION --build-arg BASE_IMAGE=your/image:with-torch .
#
# A base needs `python` with torch 2.6 or later, numpy and pip, and Debian's or Ubuntu's apt. A base without GPU support
# sets KIT_AUTO_BACKEND=gloo: a job that requests GPUs then runs without them, instead of failing.
ARG BASE_IMAGE=pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime

FROM ${BASE_IMAGE} AS build
USER 0
ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PIP_QUIET=1 PIP_ROOT_USER_ACTION=ignore
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends tini >/dev/null
RUN python -m pip install --no-deps --target /opt/kitctl tqdm
COPY . /src
RUN python -m pip install --no-deps --target /opt/kitctl /src

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="kitctl trainer" \
      org.opencontainers.image.description="Runs on each node of a kitctl job" \
      org.opencontainers.image.licenses="Apache-2.0"
# PID 1: forwards SIGTERM to the pod supervisor alone, and reaps what outlives that.
COPY --from=build /usr/bin/tini /usr/local/bin/tini
USER 0
# A path file instead of PYTHONPATH: jobs may set that one, and the base's own packages come first.
RUN python -c 'import site; open(site.getsitepackages()[0] + "/kitctl.pth", "w").write("/opt/kitctl\n")'
COPY --from=build /opt/kitctl /opt/kitctl
# Ahead of torch's own, for pods whose command was replaced by it.
COPY trainer/image/torchrun /opt/kitctl/image/torchrun
ENV PATH=/opt/kitctl/image:$PATH
# Works with any user id and a read-only root: nothing needs a user name or a home, and only /tmp is written.
ENV HOME=/tmp USER=trainer PYTHONUNBUFFERED=1
WORKDIR /workspace
RUN chmod 1777 /workspace
USER 1000:1000
ENTRYPOINT ["tini", "--"]
CMD ["python", "-P", "-m", "kittrain.agent", "--", "-m", "kittrain.workloads.digits"]
