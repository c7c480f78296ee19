# The controller of PyTorchJobs.
FROM kitctl/debian:bookworm
ENV GOGC=400
COPY training-operator /usr/local/bin/
USER 65532:65532
