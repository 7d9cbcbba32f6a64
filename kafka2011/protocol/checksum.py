"""CRC-32 (zlib's polynomial) for the Python side; the compiled twin has its own.

`crc32(data) -> int` takes any buffer. isal is three times as fast as zlib on 200-byte payloads and
is left out where there is no wheel for the machine.
"""

from zlib import crc32 as _zlib_crc32

try:
    from isal.isal_zlib import crc32
except ImportError:
    crc32 = _zlib_crc32

__all__ = ["crc32"]
