# Kueue's program, where its own manifests look for it.
FROM kitctl/debian:bookworm
ENV GOGC=400
COPY kueue /manager
