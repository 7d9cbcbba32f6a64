# The project's wheel with its compiled loops, installed in /build/out as the images will have it.
ARG VERSION
FROM kafka2011/build:${VERSION}
COPY requirements.lock pyproject.toml /build/
COPY deploy/tools/locked.sh /build/deploy/tools/
RUN /build/deploy/tools/locked.sh build > /build/tools.lock \
 && python3 -m venv /opt/kafka2011 \
 && /opt/kafka2011/bin/python -m pip install --quiet --require-hashes -r /build/tools.lock
COPY . /build/source
RUN cd /build/source \
 && /opt/kafka2011/bin/python -m pip wheel --quiet --no-deps --no-build-isolation -w /build/wheels . \
 && /opt/kafka2011/bin/python -m pip install --quiet --no-deps --root /build/out /build/wheels/*.whl \
 && mkdir -p /build/out/opt/kafka2011/bin \
 && cp -r spark-jobs deploy/docker/probe.py deploy/docker/disturb.py deploy/docker/spark-submit /build/out/opt/kafka2011/ \
 && cp -r deploy/docker/spark /build/out/opt/kafka2011/spark-conf \
 && cp services/warehouse/spark_conf/log4j2.properties /build/out/opt/kafka2011/spark-conf/ \
 && ls /build/out/opt/kafka2011/lib/python3*/site-packages/kafka2011/protocol/_hot_compiled*.so
