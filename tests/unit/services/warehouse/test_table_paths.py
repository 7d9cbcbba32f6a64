from pathlib import Path

from kafka2011.services.warehouse.table_paths import tables_in


def test_quarantine_tables_have_names_of_their_own(tmp_path: Path) -> None:
    assert tables_in(tmp_path / "nowhere") == {}
    for name in ("access_log", "quarantine/access_log", "not-a-table", "a.b"):
        (tmp_path / name / ("x" if name == "not-a-table" else "_delta_log")).mkdir(parents=True)
    assert tables_in(tmp_path) == {
        "a_b": tmp_path / "a.b",
        "access_log": tmp_path / "access_log",
        "quarantine_access_log": tmp_path / "quarantine" / "access_log",
    }
