# Java 21 on the base, for ZooKeeper and Spark.
ARG VERSION
FROM kafka2011/base:${VERSION}
RUN mkdir -p /usr/share/man/man1 && apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends openjdk-21-jre-headless procps \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
