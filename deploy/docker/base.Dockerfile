# The base of every image: Debian 13, its Python 3.13, one fixed user (target `base`); and the tools
# that build wheels (target `build`), which are in no image that runs.
#
# The build context is not this tree: deploy/tools/images.sh makes it, with what this machine needs to reach
# its package sources (apt settings, certificates of its own, pip settings). All may be empty.
ARG DEBIAN_IMAGE=debian:trixie-slim
FROM ${DEBIAN_IMAGE} AS base
COPY machine/ /
RUN { [ -x /usr/bin/python3 ] && [ -d /etc/ssl/certs ] \
    || { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends ca-certificates python3; }; } \
 && update-ca-certificates \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/dpkg.log /var/log/apt \
 && groupadd --gid 10001 kafka2011 \
 && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin kafka2011 \
 && mkdir /data /warehouse /reports && chown kafka2011:kafka2011 /data /warehouse /reports
ENV LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1

FROM base AS build
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends gcc libc6-dev python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY pip.conf /etc/pip.conf
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
