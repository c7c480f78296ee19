# Images that lack something, or have something old, each a small layer on the CPU base: in some a job trains, in the
# others it is told what is wrong.
ARG BASE
FROM ${BASE} AS no-shell
# Python and its libraries alone: no shell, no package manager, no pip.
RUN ["python3", "-c", "import os, shutil; bins = [one.path for top in ('/usr/bin', '/usr/sbin') for one in os.scandir(top)]; [os.remove(path) for path in bins if not os.path.basename(path).startswith('python')]; shutil.rmtree('/usr/lib/python3/dist-packages/pip')"]

FROM ${BASE} AS older-trainer
RUN cd /usr/lib/python3/dist-packages && mkdir kitjob kittrain \
    && echo '__version__ = "0.0.1"' > kitjob/__init__.py && echo 'raise SystemExit("older")' > kittrain/__init__.py

FROM ${BASE} AS no-torch
RUN rm -r /usr/lib/python3/dist-packages/torch

FROM ${BASE} AS old-torch
RUN echo "__version__ = '2.5.1'" > /usr/lib/python3/dist-packages/torch/version.py

FROM ${BASE} AS broken-torch
RUN rm -r /usr/lib/python3/dist-packages/torch/_C* /usr/lib/python3/dist-packages/torch/nn

FROM ${BASE} AS no-numpy
RUN rm -r /usr/lib/python3/dist-packages/numpy

FROM ${BASE} AS no-gloo
# As torch finds it where it was built without.
RUN sed -i 's/^_GLOO_AVAILABLE = True$/_GLOO_AVAILABLE = False/' \
         /usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py \
    && python3 -c 'import torch.distributed as d; assert not d.is_gloo_available()'

FROM ${BASE} AS shadowing
# Packages of the names of ours, found before all others, and imported as each interpreter starts.
RUN mkdir -p /app/kittrain /app/kitjob && echo 'raise SystemExit("the image has a kittrain of its own")' > /app/kittrain/__init__.py \
    && cp /app/kittrain/__init__.py /app/kitjob/ && echo 'import sys; sys.path.insert(0, "/app")' > /app/sitecustomize.py
ENV PYTHONPATH=/app

FROM ${BASE} AS processors
ENV KIT_AUTO_BACKEND=

FROM ${BASE} AS no-python
RUN rm /usr/bin/python*

FROM ${BASE} AS other-processor
# The header of a program for arm64.
RUN rm /usr/bin/python3 \
    && printf '\177ELF\002\001\001\000\000\000\000\000\000\000\000\000\002\000\267\000\001\000\000\000%040d' 0 > /usr/bin/python3 \
    && chmod 755 /usr/bin/python3
