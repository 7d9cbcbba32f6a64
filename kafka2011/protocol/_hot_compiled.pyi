"""Types of the compiled twin; the promises are those of `protocol._hot_pure`."""

from collections.abc import Sequence

from kafka2011.protocol.compression import DecompressionBudget
from kafka2011.protocol.message import ConsumedMessage as ConsumedMessage
from kafka2011.protocol.message import Ending, Scan

COMPILED: bool
CRC_FOLDS: bool

def scan(
    buffer: bytes | bytearray | memoryview, message_bytes_max: int, budget: DecompressionBudget
) -> Scan: ...
def check_entries(buffer: bytes | bytearray | memoryview) -> Ending: ...
def split(buffer: bytes | bytearray | memoryview) -> int: ...
def messages(
    buffer: bytes | bytearray | memoryview, offset: int, wrapper_bytes_max: int = ...
) -> list[tuple[bytes, int]]: ...
def payloads(
    buffer: bytes | bytearray | memoryview, wrapper_bytes_max: int = ...
) -> list[bytes]: ...
def take_messages(
    buffer: bytes | bytearray | memoryview,
    offset: int,
    wrapper_bytes_max: int,
    unpacked_bytes_max: int,
) -> tuple[list[tuple[bytes, int]], int]: ...
def take_payloads(
    buffer: bytes | bytearray | memoryview, wrapper_bytes_max: int, unpacked_bytes_max: int
) -> tuple[list[bytes], int]: ...
def encode(payloads: Sequence[bytes], magic: int = 1) -> bytes: ...
def produce_runs(
    buffer: bytearray | memoryview,
    start: int,
    end: int,
    frame_bytes_max: int,
    message_bytes_max: int,
) -> tuple[int, list[tuple[bytes, int, int, int, int]]]: ...
def consumed(
    buffer: bytes | bytearray | memoryview,
    offset: int,
    topic: str,
    broker_id: int,
    partition: int,
    *,
    wrapper_bytes_max: int = ...,
) -> list[ConsumedMessage]: ...
def take_consumed(
    buffer: bytes | bytearray | memoryview,
    offset: int,
    topic: str,
    broker_id: int,
    partition: int,
    wrapper_bytes_max: int,
    unpacked_bytes_max: int,
) -> tuple[list[ConsumedMessage], int]: ...
def crc32(data: bytes | bytearray | memoryview, start: int = 0) -> int: ...
def crc32_by_tables(data: bytes | bytearray | memoryview, start: int = 0) -> int: ...
