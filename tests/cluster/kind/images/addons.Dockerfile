# The add-ons' programs, where their own manifests look for them; also the shell that prepares a new volume.
FROM kitctl/debian:bookworm
ENV GOGC=400
COPY local-path-provisioner /usr/local/bin/
COPY training-operator /manager
