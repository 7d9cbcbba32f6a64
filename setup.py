"""Builds the compiled twins of the hot loops; everything else is in pyproject.toml.

The extensions are optional: where there is no C compiler the install goes on and the pure
Python twins are used (`kafka2011 version` says which). `KAFKA2011_PURE_BUILD=1` skips them.
"""

import os

from setuptools import Extension, setup

# Headers that belong to an extension: rebuilt when they change, and part of the source archive.
DEPENDS = {
    "protocol._hot_compiled": ["protocol/_crc32.h"],
    "consumer._rows_compiled": ["protocol/_crc32.h"],
}


def extensions() -> list[Extension]:
    if os.environ.get("KAFKA2011_PURE_BUILD"):
        return []
    from Cython.Build import cythonize

    sources = {
        "protocol._hot_compiled": "protocol/_hot_compiled.pyx",
        "producer._intake_compiled": "producer/_intake_compiled.pyx",
        "consumer._rows_compiled": "consumer/_rows_compiled.pyx",
        "events._peek_compiled": "events/_peek_compiled.pyx",
        "services.warehouse._columns_compiled": "services/warehouse/_columns_compiled.pyx",
    }
    found = [
        Extension(
            name,
            [path],
            depends=DEPENDS.get(name, []),
            include_dirs=["protocol"],
            extra_compile_args=["-O3"],
        )
        for name, path in sources.items()
        if os.path.exists(path)
    ]
    made: list[Extension] = cythonize(found, language_level=3)
    for extension in made:
        extension.optional = True  # cythonize() loses it when it is given to the constructor
    return made


setup(ext_modules=extensions())
