# What `make images` names as BASE_IMAGE: DEBIAN_IMAGE, with what this machine needs to reach its package sources.
# The build context is not this tree: deploy/tools/images.sh makes it (apt settings, certificates of its own; may be empty).
ARG DEBIAN_IMAGE=debian:trixie-slim
FROM ${DEBIAN_IMAGE}
COPY machine/ /
RUN { [ -x /usr/bin/python3 ] && [ -d /etc/ssl/certs ] \
    || { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends ca-certificates python3; }; } \
 && update-ca-certificates \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/dpkg.log /var/log/apt
