"""Settings as users see them: names, variables and defaults stay; each name is declared once."""

import ast
import re
from collections import Counter

import pytest

from kafka2011.runtime.config import ConfigError, default_of, documented, load, parsed, settings_of
from kafka2011.runtime.process_settings import config_classes
from kafka2011.runtime.shared_settings import FetchSettings, shared
from tests import ROOT

TABLE = ROOT / "tests" / "unit" / "runtime" / "settings.tsv"
ROOMS = ("broker", "consumer", "producer", "services", "kafka2011")

# A broker's own port, and the port of the one broker that a producer sends to.
DECLARED_TWICE = {"port"}


def test_names_variables_and_defaults_are_those_of_the_table() -> None:
    found = [
        "\t".join((config_class.__name__, name, variable, default))
        for config_class in config_classes()
        for name, variable, default, _ in documented(config_class)
    ]
    assert sorted(found) == TABLE.read_text(encoding="utf-8").splitlines()[1:]


@pytest.mark.parametrize("config_class", config_classes(), ids=lambda found: found.__name__)
def test_a_default_is_shown_as_it_is_written(config_class: type) -> None:
    """It was `True`, `()` and `frozenset()`, which no setting takes."""
    settings = settings_of(config_class)
    for name, _, shown, _ in documented(config_class):
        if shown not in ("required", "unset"):
            text = "" if shown == "empty" else shown
            assert parsed(settings[name], text) == default_of(settings[name]), name


def test_each_name_is_declared_once() -> None:
    names = Counter(
        node.args[0].value
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "setting"
        and isinstance(node.args[0], ast.Constant)
    )
    assert len(names) > 200, "the check finds the declarations"
    assert {name for name, count in names.items() if count > 1} == DECLARED_TWICE


@pytest.mark.parametrize("config_class", config_classes(), ids=lambda found: found.__name__)
def test_every_setting_has_a_description_and_times_state_their_unit(config_class: type) -> None:
    settings = settings_of(config_class)
    for name, _, _, description in documented(config_class):
        assert description, name
        if name.endswith(".ms") and settings[name].metadata["has_effect"]:
            assert re.search(r"\bms\b", description), name


@pytest.mark.parametrize("config_class", config_classes(), ids=lambda found: found.__name__)
def test_no_time_is_longer_than_a_thread_can_wait(config_class: type) -> None:
    for name, field in settings_of(config_class).items():
        if name.endswith(".ms") and field.type is int and field.metadata["has_effect"]:
            with pytest.raises(ConfigError, match=f"^{name}='9{{19}}' in --set: must be at most "):
                load(config_class, overrides=[f"{name}={'9' * 19}"], environment={})


def test_a_redeclared_setting_keeps_what_it_does_not_change() -> None:
    declared = shared(FetchSettings, "fetch.size", default=7)
    group = settings_of(FetchSettings)["fetch.size"]
    assert declared.default == 7
    assert declared.metadata == group.metadata
