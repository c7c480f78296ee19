# The controllers of JobSets and TrainJobs.
FROM kitctl/debian:bookworm
ENV GOGC=400
COPY jobset trainer /usr/local/bin/
USER 65532:65532
