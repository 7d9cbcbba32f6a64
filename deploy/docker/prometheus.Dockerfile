# Prometheus from Debian's packages, with this deployment's scrape settings (profile `observability`).
ARG VERSION
FROM kafka2011/base:${VERSION}
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends prometheus \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY deploy/docker/probe.py /opt/kafka2011/probe.py
COPY deploy/docker/prometheus.yml /etc/kafka2011/prometheus.yml
RUN promtool check config /etc/kafka2011/prometheus.yml
USER kafka2011
WORKDIR /tmp
ENTRYPOINT ["prometheus", "--config.file=/etc/kafka2011/prometheus.yml", "--storage.tsdb.path=/data"]
