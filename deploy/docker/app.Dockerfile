# An image that runs processes of this project. Two are made of it: `app` (brokers, clients, services; no Java, no Spark)
# and `spark` (ZooKeeper, Spark, and the readers of the warehouse). Neither has a compiler or pip.
ARG VERSION
ARG RUNTIME
FROM kafka2011/project:${VERSION} AS project

FROM ${RUNTIME}:${VERSION}
COPY --from=project /build/out/opt/kafka2011 /opt/kafka2011
ENV PATH=/opt/kafka2011/bin:$PATH \
    PYTHONFAULTHANDLER=1 \
    SPARK_CONF_DIR=/opt/kafka2011/spark-conf \
    PYSPARK_PYTHON=/opt/kafka2011/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/kafka2011/bin/python
USER kafka2011
WORKDIR /tmp
ENTRYPOINT ["python", "-m", "kafka2011"]
CMD ["version"]
