# The controllers of the kinds of job that Kubernetes does not have itself.
FROM kitctl/debian:bookworm
ENV GOGC=400
COPY training-operator jobset trainer /usr/local/bin/
USER 65532:65532
