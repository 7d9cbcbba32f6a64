from pathlib import Path

import pytest

from kafka2011.services.warehouse.delta_table import WarehouseError
from kafka2011.services.warehouse.reports.traffic import choose_table


def test_the_table_is_the_named_one_or_the_first_there_is(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="no table access_log or page_view"):
        choose_table(tmp_path, "")
    (tmp_path / "page_view" / "_delta_log").mkdir(parents=True)
    assert choose_table(tmp_path, "") == "page_view"
    (tmp_path / "access_log" / "_delta_log").mkdir(parents=True)
    assert choose_table(tmp_path, "") == "access_log"
    with pytest.raises(WarehouseError, match="no table click"):
        choose_table(tmp_path, "click")
