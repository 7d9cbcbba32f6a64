"""Which windows a restart excuses."""

from pathlib import Path

import pytest

from kafka2011.services.audit.restarts import (
    REDELIVERY_GRACE_MS,
    Restart,
    is_excused,
    read_restarts,
)


def test_a_restart_excuses_windows_that_began_before_it_or_soon_after() -> None:
    restarts, last_ms = [Restart("mirror-1", 50_000)], 50_000 + REDELIVERY_GRACE_MS
    without_header = -1
    windows = (without_header, 0, last_ms, last_ms + 1)
    assert [is_excused(start_ms, restarts) for start_ms in windows] == [False, True, True, False]
    assert not is_excused(0, [])


@pytest.mark.parametrize("text", ['[{"name": "m", "time_ms": 1e400}]', "[" * 99_999, "{", "[7]"])
def test_a_file_that_is_no_list_of_restarts_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "restarts.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=str(file)) as found:
        read_restarts(file)
    assert "\n" not in str(found.value)
