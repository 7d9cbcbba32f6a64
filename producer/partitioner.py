"""The partition of a key: the same as the JVM producer's for text and numbers. Pure.

The index runs over all (broker, partition) pairs of a topic, sorted numerically.
"""

Key = str | int | bytes


def _signed_32(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number


def jvm_hash(key: Key) -> int:
    """The JVM's hashCode of a String, Integer or Long; -2^31 to 2^31-1.

    Bytes hash as the text whose characters are those bytes, so that an ASCII key has one partition
    as text and as bytes. (A JVM byte array hashes by its address, which places nothing.)
    """
    if isinstance(key, int):
        if -(1 << 31) <= key < 1 << 31:
            return key
        return _signed_32((key & 0xFFFFFFFFFFFFFFFF) ^ ((key & 0xFFFFFFFFFFFFFFFF) >> 32))
    units: bytes | memoryview
    if isinstance(key, bytes):
        units = key
    elif key.isascii():
        units = key.encode()
    else:
        units = memoryview(key.encode("utf-16-le", "surrogatepass")).cast("H")
    code = 0
    for unit in units:
        code = (31 * code + unit) & 0xFFFFFFFF
    return _signed_32(code)


def default_partitioner(key: Key, count: int) -> int:
    """Absolute value of the key's JVM hash, modulo `count` (> 0).

    Unlike 0.7: a hash of -2^31, whose absolute value the JVM cannot express, is taken as 2^31. The
    original raises for it unless `count` is a power of two, and then the answers are equal.
    """
    return abs(jvm_hash(key)) % count
