# The load balancer before the live brokers: Debian's HAProxy, with Python for the health check.
ARG BASE_IMAGE=debian:trixie-slim
FROM ${BASE_IMAGE}
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends haproxy python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY probe.py /opt/kafka2011/
COPY haproxy.cfg /etc/kafka2011/
RUN haproxy -c -f /etc/kafka2011/haproxy.cfg
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["haproxy", "-db", "-f", "/etc/kafka2011/haproxy.cfg"]
LABEL kafka2011.stage=image
