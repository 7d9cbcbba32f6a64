# Prometheus from Debian's packages, with this deployment's scrape settings and alerts (profile `observability`).
ARG BASE_IMAGE=debian:trixie-slim
FROM ${BASE_IMAGE}
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends prometheus python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
 && mkdir /data && chown 10001:10001 /data
COPY docker/probe.py /opt/kafka2011/
COPY docker/prometheus.yml ops/alerts.yml /etc/kafka2011/
RUN promtool check config /etc/kafka2011/prometheus.yml
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["prometheus", "--config.file=/etc/kafka2011/prometheus.yml", "--storage.tsdb.path=/data"]
LABEL kafka2011.stage=image
