"""Builds the compiled twins of the hot loops; everything else is in pyproject.toml.

The extensions are optional: where there is no C compiler the install goes on and the pure
Python twins are used (`kafka2011 version` prints which). `KAFKA2011_PURE_BUILD=1` skips them.
"""

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

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
LAYOUTS = ["kafka2011/protocol/_entry.pxd", "kafka2011/events/_varint.pxd"]


def extensions() -> list[Extension]:
    if os.environ.get("KAFKA2011_PURE_BUILD"):
        return []
    return [
        Extension(
            source.removesuffix(".pyx").replace("/", "."),
            [source],
            depends=[CHECKSUM, *LAYOUTS],
            include_dirs=[os.path.dirname(CHECKSUM)],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for source in SOURCES
    ]


class BuildOrRemove(build_ext):
    """Removes what an earlier build made of an extension that cannot be built now: compiled from
    older sources it would be in the wheel, or be imported from the tree, beside Python of today."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception:
            Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
            raise

    def copy_extensions_to_source(self) -> None:
        for ext in self.extensions:
            name = self.get_ext_filename(self.get_ext_fullname(ext.name))
            if not Path(self.build_lib, name).exists():
                Path(name).unlink(missing_ok=True)
        super().copy_extensions_to_source()


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildOrRemove})
