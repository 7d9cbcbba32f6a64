# The base of an image that runs processes of this project: BASE, and the locked dependencies of the extras EXTRAS in a
# virtual environment. An image of its own, so that a change of the code copies the code only.
ARG VERSION
ARG BASE
FROM kafka2011/build:${VERSION} AS locked
LABEL kafka2011.stage=locked
ARG EXTRAS
COPY requirements.lock pyproject.toml /build/
COPY deploy/tools/locked.sh /build/deploy/tools/
RUN /build/deploy/tools/locked.sh ${EXTRAS} > /build/part.lock \
 && python3 -m venv /opt/kafka2011 \
 && /opt/kafka2011/bin/python -m pip install --quiet --require-hashes -r /build/part.lock \
 && /opt/kafka2011/bin/python -m pip uninstall --quiet --yes pip

FROM ${BASE}:${VERSION}
COPY --from=locked /opt/kafka2011 /opt/kafka2011
