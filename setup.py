"""Builds the compiled twins of the hot loops; everything else is in pyproject.toml.

The extensions are optional: where there is no C compiler the install goes on and the pure
Python twins are used (`kafka2011 version` prints which). `KAFKA2011_PURE_BUILD=1` skips them.
"""

import os

from setuptools import Extension, setup

SOURCES = [
    "kafka2011/protocol/_hot_compiled.pyx",
    "kafka2011/producer/asynchronous/_intake_compiled.pyx",
    "kafka2011/producer/_single_sends_compiled.pyx",
    "kafka2011/consumer/groups/_delivery_compiled.pyx",
    "kafka2011/consumer/spark/_rows_compiled.pyx",
    "kafka2011/events/_peek_compiled.pyx",
    "kafka2011/services/warehouse/load/_columns_compiled.pyx",
]
# Rebuilt when one changes, and part of the source archive.
CHECKSUM = "kafka2011/protocol/_crc32.h"
NUMBERS = "kafka2011/events/_varint.pxd"


def extensions() -> list[Extension]:
    if os.environ.get("KAFKA2011_PURE_BUILD"):
        return []
    return [
        Extension(
            source.removesuffix(".pyx").replace("/", "."),
            [source],
            depends=[CHECKSUM, NUMBERS],
            include_dirs=[os.path.dirname(CHECKSUM)],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for source in SOURCES
    ]


setup(ext_modules=extensions())
