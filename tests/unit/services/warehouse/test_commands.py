import importlib

import pytest

from kafka2011.services.warehouse import commands
from tests import ROOT

NAMES = sorted(path.stem for path in (ROOT / "spark-jobs").glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_a_spark_job_is_the_command_of_the_same_name(name: str) -> None:
    from kafka2011.cli.commands import COMMANDS

    module = importlib.import_module(str(COMMANDS[name].run))
    assert commands.script(name).samefile(str(module.__file__))


def test_every_command_has_a_spark_job() -> None:
    folder = commands.script("load").parent
    assert sorted(path.stem for path in folder.glob("[!_]*.py")) == NAMES
