"""docs/dashboard.png, the picture of the page in the README, shows the page as it is.

The picture carries what it shows (headings, links, names) in a text of its own: this is compared
with the running page, and not the pixels. `make picture` takes it anew.
"""

import json
import os
import re
import struct
import zlib
from typing import Any

from kafka2011.services.dashboard.routes import load_static
from tests import ROOT
from tests.browser.conftest import Open, expect
from tests.support.waiting import wait_until

PICTURE = ROOT / "docs" / "dashboard.png"
BYTES_MAX = 300_000
SIZE = {"width": 1280, "height": 800}
SIGNATURE = b"\x89PNG\r\n\x1a\n"
KEYWORD = b"kafka2011 page\0"
SHOWN = {
    "links": "nav a",
    "headings": "h1, main .stage-and-events h2",
    "tiles": ".tile > :first-child",
    "datacenters": "svg.picture text.panel-name",
    "stages": "svg.picture text.stage",
    "legend": ".legend li",
}
# The place of each process: a box moved is another picture.
PLACES = """boxes => Object.fromEntries(boxes.map(box => [
    box.querySelector("text.name").textContent,
    ["x", "y"].map(name => Math.round(box.querySelector("rect.box").getAttribute(name)))
]))"""


def chunks(picture: bytes) -> list[tuple[bytes, bytes]]:
    """(type, data) of a PNG file."""
    found, at = [], len(SIGNATURE)
    while at < len(picture):
        size, kind = struct.unpack_from(">I4s", picture, at)
        found.append((kind, picture[at + 8 : at + 8 + size]))
        at += size + 12
    return found


def with_text(picture: bytes, text: str) -> bytes:
    """The picture with a tEXt chunk."""
    data = b"tEXt" + KEYWORD + text.encode("ascii")
    size = struct.pack(">I", len(data) - 4)
    last = picture.rindex(b"IEND") - 4
    return picture[:last] + size + data + struct.pack(">I", zlib.crc32(data)) + picture[last:]


def shown(page: Any) -> dict[str, Any]:
    """What the picture shows that stays while its numbers move."""
    words = {
        name: [text.strip() for text in page.locator(selector).all_text_contents()]
        for name, selector in SHOWN.items()
    }
    return {**words, "places": page.locator("g.node").evaluate_all(PLACES)}


def verdict(page: Any) -> list[str]:
    """The first tile's words, without the numbers between them. On a page whose deployment was
    broken by other tests it says more, so these are looked for in what the page is made of."""
    lines = page.locator(".tile.verdict > *").all_text_contents()
    parts = [part.strip(" ,✓") for line in lines for part in re.split(r"[\d,]+", line)]
    return [part for part in parts if part]


def test_the_picture_in_the_readme_shows_the_page_as_it_is(open_page: Open) -> None:
    page = open_page("topology", viewport=SIZE, color_scheme="light")
    for tile in ("live", "offline", "warehouse"):
        expect(page.locator(f".tile.{tile}")).to_contain_text("after")
    if os.environ.get("PICTURE"):
        expect(page.locator("#link")).to_contain_text("17 up")
        balanced = re.compile(r"Nothing is lost.*?[1-9]\d* of \d+ verdicts complete", re.DOTALL)
        expect(page.locator(".tile.verdict")).to_contain_text(balanced)
        text = json.dumps({**shown(page), "verdict": verdict(page)})
        PICTURE.write_bytes(with_text(page.screenshot(), text))
    picture = PICTURE.read_bytes()
    assert len(picture) < BYTES_MAX
    (_, header), *others = chunks(picture)
    assert struct.unpack_from(">II", header) == tuple(SIZE.values())
    [text] = [data for kind, data in others if kind == b"tEXt" and data.startswith(KEYWORD)]
    pictured = json.loads(text.removeprefix(KEYWORD))
    _, script = load_static()["app.js"]
    assert [said for said in pictured.pop("verdict") if said not in script.decode()] == []
    wait_until(
        lambda: shown(page) == pictured, lambda: f"make picture takes it anew: {shown(page)}"
    )
