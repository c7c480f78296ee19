# The controllers of the kinds of job that Kubernetes does not have itself, besides those in the add-ons' image.
FROM kitctl/debian:bookworm
ENV GOGC=400
COPY jobset trainer /usr/local/bin/
USER 65532:65532
