# An object store that speaks Amazon's S3: Ceph's gateway on one disk, from Debian's packages (profile `object-store`).
ARG BASE_IMAGE=debian:trixie-slim
FROM ${BASE_IMAGE}
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends ceph-common ceph-mon ceph-osd curl radosgw python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /etc/ceph \
 && mkdir /data && chown 10001:10001 /data
COPY probe.py object_store.py /opt/kafka2011/
COPY ceph.conf /etc/ceph/
USER 10001:10001
# The OSD looks for its classes relative to the root.
WORKDIR /
STOPSIGNAL SIGTERM
ENTRYPOINT ["python3", "-I", "/opt/kafka2011/object_store.py"]
LABEL kafka2011.stage=image
