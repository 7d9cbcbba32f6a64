"""Lines of web access logs whose content is known because it was made here, and what a report on
them must say, counted without any code of the project."""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class Known:
    """One readable line and what it says."""

    line: bytes
    host: str
    hour: str
    path: str
    status: int
    size: int


def known_lines(count: int, seed: int) -> list[Known]:
    """Readable lines, regular and odd, over two days of May 2015."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        host = f"10.0.{rng.randrange(3)}.{rng.randrange(20)}"
        day, hour, minute = 17 + rng.randrange(2), rng.randrange(24), rng.randrange(60)
        path = f"/p/{rng.randrange(40)}" + ("?q=ä+b" if number % 7 == 0 else "")
        status = rng.choice([200, 200, 200, 304, 399, 400, 404, 500])
        size = rng.choice([0, 17, 5_000_000_000, None])
        size_text = "-" if size is None else str(size)
        request = f"GET {path} HTTP/1.1"
        tail, zone, shown_hour = ' "-" "an agent"', "+0000", hour
        match number % 50:
            case 3:
                request = path = "only-two words"  # not three words: the raw text is the path
            case 5:
                tail = ' "-" "no closing quote'
            case 7:
                tail = ""  # the common format
            case 9:
                tail = ' "-" "\udcff\udcfe"'  # bytes that are not UTF-8
            case 11 if hour < 22:
                zone, shown_hour = "+0200", hour + 2
        text = (
            f"{host} - - [{day}/May/2015:{shown_hour:02}:{minute:02}:00 {zone}] "
            f'"{request}" {status} {size_text}{tail}'
        )
        line = text.encode("utf-8", "surrogateescape")
        found.append(Known(line, host, f"2015-05-{day}-{hour:02}", path, status, size or 0))
    return found


UNREADABLE_LINES = [
    b"",
    b"not a line",
    b"\x00\xff" * 40,
    b'1.1.1.1 - - [yesterday] "GET / X" 200 1',
]


def figures(known: Sequence[Known]) -> dict[str, Any]:
    """The report as docs/warehouse.md defines it, straight from what the lines say."""

    def traffic(part: Sequence[Known]) -> dict[str, Any]:
        errors = sum(line.status >= 400 for line in part)
        return {
            "page_views": len(part),
            "visitors": len({line.host for line in part}),
            "bytes": sum(line.size for line in part),
            "errors": errors,
            "error_share": errors / len(part),
        }

    by_hour = defaultdict(list)
    for line in known:
        by_hour[line.hour].append(line)
    views = Counter(line.path for line in known)
    ranked = sorted(views.items(), key=lambda item: (-item[1], item[0].encode()))
    return {
        "totals": traffic(known),
        "hours": [{**traffic(part), "hour": hour} for hour, part in sorted(by_hour.items())],
        "top_paths": [{"path": path, "page_views": count} for path, count in ranked[:20]],
    }
