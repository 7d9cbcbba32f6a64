# The load balancer before the live brokers: Debian's HAProxy. Its settings are mounted.
ARG VERSION
FROM kafka2011/base:${VERSION}
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends haproxy \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY deploy/docker/probe.py /opt/kafka2011/probe.py
COPY deploy/docker/haproxy.cfg /etc/kafka2011/haproxy.cfg
RUN haproxy -c -f /etc/kafka2011/haproxy.cfg
USER kafka2011
STOPSIGNAL SIGTERM
ENTRYPOINT ["haproxy", "-db", "-f", "/etc/kafka2011/haproxy.cfg"]
