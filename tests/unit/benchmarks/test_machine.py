"""The facts that are kept with each result."""

from pathlib import Path

from benchmarks.machine import file_system_of


def test_a_file_system_is_that_of_the_directory_and_not_of_one_whose_name_begins_so() -> None:
    assert file_system_of(Path("/proc/self")) == "proc"
    assert file_system_of(Path("/process")) == file_system_of(Path("/")) != "proc"
