import importlib

import pytest

from kafka2011.cli.commands import COMMANDS
from kafka2011.services.warehouse import commands


@pytest.mark.parametrize("name", ["load", "report", "reports", "stream"])
def test_spark_submit_runs_the_module_of_the_command(name: str) -> None:
    module = importlib.import_module(str(COMMANDS[name].run))
    assert commands.script(name).samefile(str(module.__file__))
