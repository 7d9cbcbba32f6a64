"""Settings as keyword arguments of the clients' constructors, and one line for a wrong keyword."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, replace
from typing import Any, ParamSpec, TypeVar

from kafka2011.runtime.config import (
    ConfigError,
    default_of,
    parsed,
    settings_of,
    suggestion,
    without_password,
)
from kafka2011.runtime.process_config import ProcessConfig

Config = TypeVar("Config", bound=ProcessConfig)
Given = ParamSpec("Given")
Made = TypeVar("Made")


def check_keywords(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError for a keyword that `owner` does not have, with the closest one it has."""
    known = list(known)
    for name in given:
        if name not in known:
            raise TypeError(f"{owner} has no keyword {name!r}{suggestion(name, known)}")


def checks_keywords(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """The same method, with `check_keywords` before each call."""
    owner, known = function.__qualname__.partition(".")[0], inspect.signature(function).parameters

    @functools.wraps(function)
    def checked(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        check_keywords(owner, kwargs, known)
        return function(*args, **kwargs)

    return checked


def with_keywords(
    owner: str, config: Config | type[Config], settings: Mapping[str, Any], own: Iterable[str] = ()
) -> Config:
    """Make a configuration of keyword settings, or change `config` by them; strings are parsed as
    in a properties file, and numbers have the same ranges as there.

    `owner` is the class in the messages, `own` its other keywords. A setting without effect is
    logged. Raises ConfigError for a value, and TypeError for a name that is unknown or missing.
    """
    kind = config if isinstance(config, type) else type(config)
    if not issubclass(kind, ProcessConfig):
        raise TypeError(f"{owner}: {config!r} is not a configuration; pass settings as keywords")
    by_field = {field.name: field for field in settings_of(kind).values()}
    check_keywords(owner, settings, [*by_field, *own])
    values: dict[str, Any] = {}
    if not isinstance(config, type):
        for field in settings_of(kind).values():
            if (value := getattr(config, field.name)) != default_of(field):
                _value(field, value)
    for name, value in settings.items():
        metadata = by_field[name].metadata
        if not metadata["has_effect"]:
            from kafka2011.runtime.logs import get_logger

            get_logger(__name__).warning(
                "setting_ignored", detail=f"{name} has no effect: {metadata['doc']}"
            )
        values[name] = _value(by_field[name], value)
    try:
        if not isinstance(config, type):
            return replace(config, **values)
        lacking = [name for name in by_field if by_field[name].metadata.get("required")]
        if missing := [name for name in lacking if name not in values]:
            raise TypeError(f"{owner} needs the keyword {missing[0]!r}")
        return config(**values)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _value(field: Field[Any], value: object) -> object:
    """The value of a keyword: a text is parsed, a number checked as its text would be. Raises
    ConfigError."""
    kind = field.type
    is_number = isinstance(kind, type) and issubclass(kind, int) and kind is not bool
    try:
        if is_number or isinstance(value, str):
            return parsed(field, str(value))
        if kind is str:  # where only some texts are allowed, None is none of them
            parsed(field, str(value))
    except ValueError as error:
        raise ConfigError(f"{field.name}={without_password(repr(value))}: {error}") from None
    return value
