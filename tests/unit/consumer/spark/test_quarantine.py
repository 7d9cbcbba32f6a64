"""The files of unreadable messages, whatever the topic's name is."""

from pathlib import Path

import pyarrow.parquet as pq

from kafka2011.consumer.ranges.planning import OffsetRange
from kafka2011.consumer.spark.quarantine import QuarantineFile
from kafka2011.consumer.spark.rows import Unreadable

PLAIN = ["page-view", "a_b", "a.b", "x" * 100]
ODD = ["Page-View", "PAGE-view", "_hidden", ".hidden", "a b", "a~b", "x" * 249, "é" * 255]


def test_every_topic_has_a_file_of_its_own_that_readers_see(tmp_path: Path) -> None:
    for topic in [*PLAIN, *ODD]:
        file = QuarantineFile(tmp_path, OffsetRange(topic, 2**31 - 1, 2**31 - 1, 0, 9))
        file.put(Unreadable(topic, 2**31 - 1, 2**31 - 1, 0, 9, "why", b"it"))
        file.close()
    names = [path.name for path in tmp_path.iterdir()]
    assert len({name.casefold() for name in names}) == len(PLAIN) + len(ODD)
    assert not [name for name in names if name[0] in "._"]
    for topic in PLAIN:
        assert [name for name in names if name.startswith(f"{topic}-2147483647-")] != []
    found = [pq.read_table(path)["topic"][0].as_py() for path in tmp_path.iterdir()]
    assert sorted(found) == sorted([*PLAIN, *ODD])
