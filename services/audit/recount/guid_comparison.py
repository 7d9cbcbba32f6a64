"""Compares tiers guid by guid, so that a copy never makes up for a lost message.

Each message becomes twenty bytes: the number of its cell and its guid. They are spread over buckets
by their hash, spilled to one temporary file above a limit, and compared bucket by bucket, so that
memory is bounded however many messages there are. Used by one thread.

Messages of a topic without guids (events.origin) are known by their payload. Equal payloads may be
several messages: a tier's first is the same as another tier's first, its second as the second.
"""

import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from types import TracebackType

from kafka2011.events.errors import HeaderUnreadable
from kafka2011.events.forms import FORMS_2011, Forms
from kafka2011.events.header import GUID_BYTES, UNREADABLE
from kafka2011.events.origin import origin_of
from kafka2011.events.windows import window_start
from kafka2011.services.audit.books.ledger import CellKey
from kafka2011.services.audit.server_filter import IsOurs
from kafka2011.services.audit.verdicts import GuidCounts

BUCKETS = 256
CELL_BYTES = 4
KEY_BYTES = CELL_BYTES + GUID_BYTES
MEMORY_BYTES_MAX = 256 * 1024 * 1024


def has_header(forms: Forms, topic: str, payload: bytes) -> bool:
    """Whether a message of the topic is an event."""
    try:
        origin_of(forms, topic).header(payload)
    except HeaderUnreadable:
        return False
    return True


class NextTier(Enum):
    """How far the next tier has come: whether it has passed some messages of this one."""

    PASSED = 0  # what is not there will not come
    BEHIND = 1  # it may still come
    UNKNOWN = 2


class GuidTally:
    """Counts messages by cell and tier, and keeps their guids. Use as a context manager.

    `tier_count` tiers, addressed by index in the order in which messages pass them. `is_ours` by
    tier: messages of other servers are skipped there (None: count all).
    """

    def __init__(
        self,
        tier_count: int,
        window_ms: int,
        *,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        is_ours: Sequence[IsOurs | None] = (),
        forms: Forms = FORMS_2011,
    ) -> None:
        self._tier_count = tier_count
        self._is_ours = is_ours or [None] * tier_count
        self._forms = forms
        self._window_ms = window_ms
        self._memory_bytes_max = memory_bytes_max
        self._cells: dict[tuple[str, int, str], int] = {}  # -> number of the cell
        self._keys: list[CellKey] = []
        self._without_guids: set[bytes] = set()  # numbers of cells, as in the keys
        self._counted = [Counter[int]() for _ in range(tier_count)]
        # By tier; then what the next tier has not passed: BEHIND by tier, UNKNOWN by tier.
        self._buffers = [[bytearray() for _ in range(BUCKETS)] for _ in range(3 * tier_count)]
        self._buffered_bytes = 0
        self._spill = tempfile.TemporaryFile(prefix="kafka2011-audit-")  # noqa: SIM115
        self._extents: list[list[list[tuple[int, int]]]] = [
            [[] for _ in range(BUCKETS)] for _ in range(3 * tier_count)
        ]

    def __enter__(self) -> "GuidTally":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._spill.close()

    # --- messages ----------------------------------------------------------------------------

    def add_payloads(
        self,
        tier: int,
        topic: str,
        payloads: Iterable[bytes],
        *,
        next_tier: NextTier = NextTier.PASSED,
    ) -> int:
        """Count the payloads of a log; returns their number.

        Those that the next tier has not certainly passed are not missing there.
        """
        window_ms = self._window_ms
        origin = origin_of(self._forms, topic)
        buffers = self._buffers[tier]
        is_last = tier == self._tier_count - 1
        kept_again = next_tier is not NextTier.PASSED and not is_last
        again = self._buffers[next_tier.value * self._tier_count + tier]
        is_ours = self._is_ours[tier]
        counted: Counter[int] = Counter()
        count = 0
        for payload in payloads:
            try:
                guid, time_ms, server, _ = origin.header(payload)
                if is_ours is not None and not is_ours(server):
                    continue
                number = self._cell(topic, window_start(time_ms, window_ms), server)
            except HeaderUnreadable:
                if is_ours is not None and not is_ours(UNREADABLE[1]):
                    continue
                number = self._cell(topic, *UNREADABLE)
                if origin.has_guids:  # what stands in place of the guid may be anything
                    guid = hashlib.blake2b(payload, digest_size=GUID_BYTES).digest()
                else:
                    guid = origin.guid(payload)
            key = number.to_bytes(CELL_BYTES, "big") + guid
            buffers[hash(key) % BUCKETS] += key
            if kept_again:
                again[hash(key) % BUCKETS] += key
            counted[number] += 1
            count += 1
        self._counted[tier].update(counted)
        self._buffered(2 * count if kept_again else count)
        return count

    def add_rows(
        self,
        tier: int,
        topic: str,
        guids: Sequence[bytes],
        times_ms: Sequence[int],
        servers: Sequence[str | None],
    ) -> int:
        """Count the rows of a table; returns their number. A row without a time (-1) or a server
        counts as a message whose header cannot be read."""
        window_ms = self._window_ms
        buffers = self._buffers[tier]
        is_ours = self._is_ours[tier]
        counted: Counter[int] = Counter()
        count = 0
        for guid, time_ms, server in zip(guids, times_ms, servers, strict=True):
            if time_ms < 0 or server is None:
                start_ms, name = UNREADABLE
            else:
                start_ms, name = window_start(time_ms, window_ms), server
            if is_ours is not None and not is_ours(name):
                continue
            number = self._cell(topic, start_ms, name)
            key = number.to_bytes(CELL_BYTES, "big") + guid
            buffers[hash(key) % BUCKETS] += key
            counted[number] += 1
            count += 1
        self._counted[tier].update(counted)
        self._buffered(count)
        return count

    def _cell(self, topic: str, window_start_ms: int, server: str) -> int:
        key = (topic, window_start_ms, server)
        number = self._cells.get(key)
        if number is None:
            number = self._cells[key] = len(self._keys)
            self._keys.append(CellKey(*key))
            if not origin_of(self._forms, topic).has_guids:
                self._without_guids.add(number.to_bytes(CELL_BYTES, "big"))
        return number

    def _buffered(self, count: int) -> None:
        self._buffered_bytes += count * KEY_BYTES
        if self._buffered_bytes < self._memory_bytes_max:
            return
        for tier in range(3 * self._tier_count):
            for bucket, buffer in enumerate(self._buffers[tier]):
                if buffer:
                    self._extents[tier][bucket].append((self._spill.tell(), len(buffer)))
                    self._spill.write(buffer)
                    buffer.clear()
        self._buffered_bytes = 0

    # --- results -----------------------------------------------------------------------------

    def counts(self, tier: int) -> dict[CellKey, int]:
        """Messages by cell, copies included."""
        return {self._keys[number]: count for number, count in self._counted[tier].items()}

    def compare(self) -> dict[tuple[CellKey, int], GuidCounts]:
        """The counts by guid of each cell at each tier; call once, at the end."""
        cells = range(len(self._keys))
        distinct = [Counter[bytes]() for _ in range(self._tier_count)]
        lost = [Counter[bytes]() for _ in range(self._tier_count)]
        behind = [Counter[bytes]() for _ in range(self._tier_count)]
        unsure = [Counter[bytes]() for _ in range(self._tier_count)]
        seen = [Counter[bytes]() for _ in range(self._tier_count)]
        equal = [Counter[bytes]() for _ in range(self._tier_count)]
        for bucket in range(BUCKETS):
            so_far: set[bytes] = set()
            late: set[bytes] = set()  # at the tiers up to the one before
            unknown: set[bytes] = set()
            for tier in range(self._tier_count):
                raw = self._bucket(tier, bucket)
                here = self._known(raw)
                missing = so_far - here
                so_far |= here
                distinct[tier].update(key[:CELL_BYTES] for key in here)
                lost[tier].update(key[:CELL_BYTES] for key in missing - late - unknown)
                behind[tier].update(key[:CELL_BYTES] for key in missing & late)
                unsure[tier].update(key[:CELL_BYTES] for key in missing & unknown - late)
                of = Counter(raw) if self._without_guids else None
                for key, count in of.items() if of else ():
                    if count > 1 and key[:CELL_BYTES] in self._without_guids:
                        equal[tier][key[:CELL_BYTES]] += count - 1
                behind_here = NextTier.BEHIND.value * self._tier_count + tier
                late |= self._known(self._bucket(behind_here, bucket), of)
                unknown_here = NextTier.UNKNOWN.value * self._tier_count + tier
                unknown |= self._known(self._bucket(unknown_here, bucket), of)
                seen[tier].update(key[:CELL_BYTES] for key in so_far)
        found = {}
        for number in cells:
            name = number.to_bytes(CELL_BYTES, "big")
            for tier in range(self._tier_count):
                found[(self._keys[number], tier)] = GuidCounts(
                    counted=self._counted[tier][number],
                    distinct=distinct[tier][name],
                    lost=lost[tier][name],
                    behind=behind[tier][name],
                    unsure=unsure[tier][name],
                    equal=equal[tier][name],
                    seen=seen[tier][name],
                    seen_before=seen[tier - 1][name] if tier else 0,
                )
        return found

    def _known(self, keys: list[bytes], of: Counter[bytes] | None = None) -> set[bytes]:
        """The messages that the keys stand for: equal keys without guids are numbered from 1 on. If
        the keys are part of those in `of`, they get the last numbers there."""
        if not self._without_guids:
            return set(keys)
        times: Counter[bytes] = Counter()
        for key, count in Counter(keys).items():
            times[key] = of[key] - count if of is not None else 0
        found: set[bytes] = set()
        for key in keys:
            if key[:CELL_BYTES] in self._without_guids:
                times[key] += 1
                found.add(key + times[key].to_bytes(CELL_BYTES, "big"))
            else:
                found.add(key)
        return found

    def _bucket(self, tier: int, bucket: int) -> list[bytes]:
        keys: list[bytes] = []
        buffer = self._buffers[tier][bucket]
        keys += (bytes(buffer[at : at + KEY_BYTES]) for at in range(0, len(buffer), KEY_BYTES))
        for position, length in self._extents[tier][bucket]:
            self._spill.seek(position)
            stored = self._spill.read(length)
            keys += (stored[at : at + KEY_BYTES] for at in range(0, length, KEY_BYTES))
        return keys
