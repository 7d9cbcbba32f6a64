"""Settings: one declaration per name, three sources, one form of error.

A process declares a frozen dataclass whose fields are made by `setting(...)`: the property name
(0.7's where 0.7 has it), the default, the parser and a description. The environment variable is
derived from the property name: `log.flush.interval` is `KAFKA2011_LOG_FLUSH_INTERVAL`.
Precedence: `--set name=value`, then environment, then properties file, then default.

    file:         an unknown name is a warning (the original ignores it, and its files must work)
    --set, env:   an unknown name is an error; a bad value is an error anywhere

`ConfigError` carries one line that says what, where and what to do; the command line prints it
and exits with status 2. Settings reach a process in no other way: other modules read from
`os.environ` only what is not a setting (JAVA_HOME, and the names in RESERVED_ENVIRONMENT).
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

ENVIRONMENT_PREFIX = "KAFKA2011_"
REQUIRED: Any = object()

# Read where they take effect, before or without any settings, so no process's settings name them.
RESERVED_ENVIRONMENT = frozenset({"KAFKA2011_PURE", "KAFKA2011_PURE_BUILD", "KAFKA2011_FAILPOINTS"})

Config = TypeVar("Config")

TIME_MAX_MS = 100 * 365 * 86_400_000  # of any setting; a thread cannot wait for three times this

# What neither a path nor text that is sent can have. The surrogates not listed stand for bytes.
_NO_TEXT = re.compile("[\x00\ud800-\udc7f\udd00-\udfff]")
_PASSWORD = re.compile(r"(://)[^/?#\s]*@")  # of a URL


class ConfigError(ValueError):
    """A setting that cannot be used. The text is one line for the user; exit with status 2."""


def setting(
    name: str,
    default: Any,
    parse: Callable[[str], Any],
    doc: str,
    *,
    has_effect: bool = True,
    in_files: str = "",
) -> Any:
    """Declare one dataclass field.

    `default` is the parsed value, or REQUIRED. `has_effect=False` marks a 0.7 name that is
    accepted without effect; using it is logged once. `in_files` is the name that another program's
    properties files have for it; it is taken in a file only.
    """
    metadata = {
        "name": name,
        "parse": parse,
        "doc": doc,
        "has_effect": has_effect,
        "in_files": in_files,
    }
    if default is REQUIRED:
        return dataclasses.field(metadata={**metadata, "required": True}, kw_only=True)
    if isinstance(default, dict | list):
        return dataclasses.field(
            default_factory=lambda: type(default)(default), metadata=metadata, kw_only=True
        )
    return dataclasses.field(default=default, metadata=metadata, kw_only=True)


def environment_name(name: str) -> str:
    """The environment variable of a property name."""
    return ENVIRONMENT_PREFIX + re.sub(r"[.\-]", "_", name).upper()


def settings_of(config_class: type) -> dict[str, dataclasses.Field[Any]]:
    """Property name -> dataclass field, in declaration order."""
    return {
        field.metadata["name"]: field
        for field in dataclasses.fields(config_class)
        if "name" in field.metadata
    }


def parsed(field: dataclasses.Field[Any], text: str) -> Any:
    """The value of a setting's text. Raises ValueError with the reason."""
    if found := _NO_TEXT.search(text):
        raise ValueError(f"must not contain {found[0]!r}")
    value = field.metadata["parse"](text)
    is_time = field.metadata["name"].endswith(".ms") and isinstance(value, int)
    if is_time and value > TIME_MAX_MS:
        raise ValueError(f"must be at most {TIME_MAX_MS}")
    return value


def parse_properties(text: str) -> dict[str, str]:
    """Read a Java properties file as java.util.Properties does.

    `key=value` or `key:value` or `key value`; `#` and `!` start comments; a trailing backslash
    continues the line; white space before the value is dropped, after it kept.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
        assert match is not None  # the pattern accepts every string
        found[_unescape(match[1])] = _unescape(match[2])
    return found


def _logical_lines(text: str) -> Iterable[str]:
    pending = ""
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    plain = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def replace(match: re.Match[str]) -> str:
        body = match[1]
        if len(body) == 11:  # the two halves of one character
            return bytes.fromhex(body[1:5] + body[7:]).decode("utf-16-be")
        if len(body) == 5:
            return chr(int(body[1:], 16))
        return plain.get(body, body)

    pair = r"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    return re.sub(rf"\\({pair}|u[0-9a-fA-F]{{4}}|.)", replace, text, flags=re.DOTALL)


def load(
    config_class: type[Config],
    *,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str],
    known_elsewhere: Iterable[str] = (),
) -> tuple[Config, list[str]]:
    """Build the configuration of one process; returns it with the warnings to log once.

    `known_elsewhere` are names of other processes' settings, which are ignored in the environment.
    Raises ConfigError (one line) for a name or value that cannot be used.
    """
    settings = settings_of(config_class)
    warnings: list[str] = []
    raw: dict[str, tuple[str, str]] = {}  # name -> (text, its source)

    if file is not None:
        ours = {field.metadata["in_files"]: name for name, field in settings.items()}
        for written, text in read_properties(file).items():
            name = ours.get(written, written) if written else written
            if name in settings:
                raw[name] = (text, f"in {file}")
            else:
                warnings.append(f"unknown setting {name!r} in {file} is ignored")

    raw.update(_from_environment(settings, environment, set(known_elsewhere)))

    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals:
            shown = without_password(override)
            raise ConfigError(f"--set {shown!r}: write it as --set name=value")
        if name not in settings:
            raise ConfigError(f"--set {name}: unknown setting{suggestion(name, settings)}")
        raw[name] = (text, "in --set")

    values: dict[str, Any] = {}
    for name, (text, where) in raw.items():
        metadata = settings[name].metadata
        try:
            values[settings[name].name] = parsed(settings[name], text)
        except ValueError as error:
            shown = without_password(text)
            raise ConfigError(f"{name}={shown!r} {where}: {error}") from None
        if not metadata["has_effect"]:
            warnings.append(f"setting {name!r} {where} has no effect here: {metadata['doc']}")

    missing = [
        name
        for name, field in settings.items()
        if field.metadata.get("required") and field.name not in values
    ]
    if missing:
        raise ConfigError(_missing_text(missing))
    try:
        return config_class(**values), warnings
    except ValueError as error:  # the class's own __post_init__ found values that do not fit
        raise ConfigError(str(error)) from None


def _missing_text(names: Sequence[str]) -> str:
    """The line for settings without a default that are not set."""
    first = names[0]
    how = f"with --set {first}=... or as {environment_name(first)}"
    if len(names) == 1:
        return f"{first} is required: set it in the properties file, {how}"
    return f"{', '.join(names)} are required: set each in the properties file, {how}"


def read_properties(file: Path) -> dict[str, str]:
    """The names and values of a properties file. Raises ConfigError."""
    try:
        return parse_properties(file.read_text(encoding="utf-8-sig", errors="surrogateescape"))
    except OSError as error:
        raise ConfigError(f"cannot read the settings in {file}: {error.strerror}") from None


def _from_environment(
    settings: Mapping[str, Any], environment: Mapping[str, str], known_elsewhere: set[str]
) -> dict[str, tuple[str, str]]:
    by_variable = {environment_name(name): name for name in settings}
    elsewhere = {environment_name(name) for name in known_elsewhere} | RESERVED_ENVIRONMENT
    found: dict[str, tuple[str, str]] = {}
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if variable in by_variable:
            found[by_variable[variable]] = (text, f"in the environment ({variable})")
        elif variable not in elsewhere:
            hint = suggestion(variable, by_variable.keys() | elsewhere)
            raise ConfigError(f"{variable} in the environment: unknown setting{hint}")
    return found


def without_password(shown: str) -> str:
    """`shown` with *** for the user and the password in each of its URLs."""
    return _PASSWORD.sub(r"\1***@", shown)


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean NAME?` if one of the known names is close, else ""."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def default_of(field: Any) -> Any:
    """A setting's default; dataclasses.MISSING for a required one."""
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def documented(config_class: type) -> list[tuple[str, str, str, str]]:
    """Rows (name, environment variable, default, description) for `kafka2011 settings` and docs.

    The default is as a user writes it, or `required`, `unset` or `empty` (`name=`).
    """
    rows = []
    for name, field in settings_of(config_class).items():
        doc = field.metadata["doc"]
        shown = doc if field.metadata["has_effect"] else f"no effect: {doc}"
        rows.append((name, environment_name(name), _shown_default(field), shown))
    return rows


def _shown_default(field: dataclasses.Field[Any]) -> str:
    if field.metadata.get("required"):
        return "required"
    default = default_of(field)
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        default = ",".join(default)
    elif isinstance(default, frozenset | dict | list) and not default:
        default = ""
    if default == "":
        return "empty" if _takes_nothing(field) else "unset"
    return "unset" if default is None else str(default)


def _takes_nothing(field: dataclasses.Field[Any]) -> bool:
    """Whether `name=` is a value of the setting."""
    try:
        parsed(field, "")
    except ValueError:
        return False
    return True


# --- parsers: text -> value, ValueError with the reason --------------------------------------


def text(value: str) -> str:
    return value


def whole(minimum: int | None = None, maximum: int | None = None) -> Callable[[str], int]:
    """A parser of decimal whole numbers within [minimum, maximum]."""

    def parse(value: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", value):
            raise ValueError("must be a whole number")
        number = int(value)
        if minimum is not None and number < minimum:
            raise ValueError(f"must be at least {minimum}")
        if maximum is not None and number > maximum:
            raise ValueError(f"must be at most {maximum}")
        return number

    return parse


def boolean(value: str) -> bool:
    """Exactly `true` or `false`, as in 0.7."""
    if value not in ("true", "false"):
        raise ValueError("must be exactly true or false")
    return value == "true"


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError("must be one of " + ", ".join(choices))
        return value

    return parse


def comma_list(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def path(value: str) -> Path:
    if not value:
        raise ValueError("must be a path")
    if "://" in value:  # Path would make a directory `s3:` of it
        raise ValueError(
            "must be a path of this machine; only warehouse.dir may be s3://bucket/prefix"
        )
    return Path(value)


def per_topic(minimum: int = 1, maximum: int = 2**31 - 1) -> Callable[[str], dict[str, int]]:
    """A parser of `topic:number,topic:number`.

    Unlike 0.7: a malformed entry is an error, not a log line, which is easily overlooked.
    """
    number = whole(minimum, maximum)

    def parse(value: str) -> dict[str, int]:
        found = {}
        for part in comma_list(value):
            topic, colon, count = part.rpartition(":")
            if not colon or not topic:
                raise ValueError(f"{part!r} must be topic:number")
            try:
                found[topic] = number(count)
            except ValueError as error:
                raise ValueError(f"{part!r}: the number {error}") from None
        return found

    return parse


def address(value: str) -> tuple[str, int]:
    """Parse `host:port`."""
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ValueError("must be host:port")
    return host, int(port)


def address_map(value: str) -> dict[tuple[str, int], tuple[str, int]]:
    """`published=dial,published=dial`: the address to connect to for each published one."""
    found = {}
    for part in comma_list(value):
        published, equals, dial = part.partition("=")
        if not equals:
            raise ValueError(f"{part!r} must be host:port=host:port")
        found[address(published)] = address(dial)
    return found
