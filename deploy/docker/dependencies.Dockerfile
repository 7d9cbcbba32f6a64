# What an image that runs processes of this project stands on: its base (BASE) and the locked dependencies (LOCK) in a
# virtual environment. An image of its own, so that a change of the project's code copies the project only.
ARG VERSION
ARG BASE
FROM kafka2011/build:${VERSION} AS locked
LABEL kafka2011.stage=locked
ARG LOCK
COPY ${LOCK} /build/requirements.lock
RUN python3 -m venv /opt/kafka2011 \
 && /opt/kafka2011/bin/python -m pip install --quiet --require-hashes -r /build/requirements.lock \
 && /opt/kafka2011/bin/python -m pip uninstall --quiet --yes pip

FROM ${BASE}:${VERSION}
COPY --from=locked /opt/kafka2011 /opt/kafka2011
