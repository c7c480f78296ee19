FROM kitctl/debian:bookworm
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends docker-registry >/dev/null && rm -rf /var/lib/apt/lists/*
RUN printf '%s\n' 'version: 0.1' 'log: {level: warn, accesslog: {disabled: true}}' \
      'storage: {filesystem: {rootdirectory: /var/lib/registry}, delete: {enabled: true}}' \
      'http: {addr: ":5000"}' > /etc/registry.yml
ENTRYPOINT ["docker-registry", "serve", "/etc/registry.yml"]
