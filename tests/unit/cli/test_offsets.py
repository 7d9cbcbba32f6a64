"""The file of `offsets import`."""

import pytest

from tests.conftest import Run


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"junk\n", "standard input: line 1 is not /consumers/GROUP/offsets/TOPIC/"),
        (b"", "standard input: no offsets in it"),
    ],
)
def test_what_is_no_export_is_said_of_standard_input(run: Run, content: bytes, said: str) -> None:
    done = run("offsets", "import", "--input-file", "-", text=content)
    assert done.status == 1
    assert done.err.startswith(f"kafka2011: {said}")
