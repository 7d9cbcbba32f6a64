"""The directory of a deployment: whether it may be used, continued or emptied, and with what
settings it was used before.
"""

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from kafka2011.events.forms import FORMS_SETTING, SERVER_SETTING, TIME_SETTING, Forms, forms_of
from kafka2011.events.topics import TOPICS
from kafka2011.runtime.config import (
    ENVIRONMENT_PREFIX,
    RESERVED_ENVIRONMENT,
    environment_name,
    settings_of,
)
from kafka2011.runtime.lifeline import PARENT_VARIABLE
from kafka2011.runtime.program import program
from kafka2011.services.embedded.config import EmbeddedConfig
from kafka2011.services.embedded.control import DirectoryRefused, last_command
from kafka2011.services.embedded.demo_input import inputs_under
from kafka2011.services.embedded.processes import end_leftovers
from kafka2011.services.embedded.running import MARK
from kafka2011.services.embedded.supervisor import StartFailed
from kafka2011.services.embedded.topology import replicas_under

# What emptying leaves: the results of `make bench`, which no deployment made, and the lock.
KEPT = frozenset({"benchmarks", MARK})
TOPICS_NAMED_MAX = 8
_TAKEN = {"KAFKA2011_PURE", *map(environment_name, settings_of(EmbeddedConfig))}


def check_root(root: Path) -> None:
    """Raises StartFailed when `root` holds something that this command did not make."""
    if root.exists() and not root.is_dir():
        raise StartFailed(f"{root} is not a directory")
    if root.exists() and not is_ours(root):
        raise StartFailed(f"{root} was not made by this command; choose another with --dir")


def collected_topics(root: Path) -> set[str]:
    """The topics that the brokers under `root` have."""
    return {
        path.name.rpartition("-")[0]
        for logs in ("broker-*/logs", "machine-*/broker-*/logs")
        for path in root.glob(f"{logs}/*-[0-9]*")
        if path.is_dir()
    }


def check_replicas(root: Path, wanted: int) -> None:
    """Raises DirectoryRefused when the live brokers whose logs are in `root` have another number of
    replicas: what they hold would not be there."""
    found = replicas_under(root)
    if found not in (0, wanted):
        held = f"replica sets of {found}" if found > 1 else "brokers without replicas"
        raise DirectoryRefused(
            f"{root} holds {held}: start with --replicas {found} (make: REPLICAS={found}), or "
            "choose another directory (--dir, make: DIR=)"
        )


def check_forms(root: Path, before: str, now: str) -> None:
    """Raises DirectoryRefused when `root` has messages of a topic whose form has changed since the
    last start, or whose field for time or server is not given any more: the audit would call them
    missing, and loads quarantine new ones. A form that names the topic is accepted. `before` and
    `now` are the settings of the two starts as they stand on a command line."""
    given_before, given_now = _form_settings(before), _form_settings(now)
    try:
        old, new = (forms_of(dict(given.values())) for given in (given_before, given_now))
    except ValueError:
        return  # each process says what is wrong with its settings
    lost = [
        topic
        for topic in sorted(collected_topics(root))
        if (old.of(topic) is not new.of(topic) and topic not in new.by_topic)
        or (old.of(topic) is new.of(topic) and _has_lost_a_field(old, new, topic))
    ]
    if lost:
        word, settings = ("with", given_before) if given_before else ("without", given_now)
        raise DirectoryRefused(
            f"{root} holds messages of {', '.join(lost[:TOPICS_NAMED_MAX])} that other settings "
            f"read: start {word} {' '.join(settings)} as last time, or choose another "
            "directory (--dir, make: DIR=)"
        )


def _form_settings(line: str) -> dict[str, tuple[str, str]]:
    """The settings on a command line that say how topics are read: its words -> setting, value."""
    found = {}
    for word in _words(line):
        name, is_given, value = word.removeprefix("--set=").partition("=")
        for setting in (FORMS_SETTING, TIME_SETTING, SERVER_SETTING) if is_given else ():
            if name == environment_name(setting):
                found[f"{name}={shlex.quote(value)}"] = (setting, value)
            elif name == setting:
                found[f"--set {shlex.quote(f'{name}={value}')}"] = (setting, value)
    return found


def _has_lost_a_field(old: Forms, new: Forms, topic: str) -> bool:
    return any(
        field(old, topic) and not field(new, topic)
        for field in (Forms.time_field, Forms.server_field)
    )


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # cut off: its file was not written completely
        return line.split()


def settings_given(environment: Mapping[str, str]) -> str:
    """The deployment's settings that came from the environment, as they stand in front of a
    command."""
    given = sorted(environment.keys() & _TAKEN)
    return "".join(f"{name}={shlex.quote(environment[name])} " for name in given)


def settings_not_taken(environment: Mapping[str, str]) -> str:
    """A line on variables that are a setting's, and not of the deployment, which gives its
    processes settings of their own; "" for none."""
    others = environment.keys() - _TAKEN - RESERVED_ENVIRONMENT - {PARENT_VARIABLE}
    names = ", ".join(sorted(name for name in others if name.startswith(ENVIRONMENT_PREFIX)))
    if not names:
        return ""
    return (
        f"no process of the deployment takes {names}; `{program()} settings embedded` lists what "
        "it takes"
    )


def settings_changed(before: str, now: str) -> str:
    """How the settings differ, both as they stand on a command line: `without --set a=1; with
    KAFKA2011_B=2`; "" when they do not."""

    def parts(line: str) -> list[str]:
        found: list[str] = []
        for word in _words(line):
            follows = found and found[-1].startswith("--") and " " not in found[-1]
            found[-1:] = [f"{found[-1]} {shlex.quote(word)}"] if follows else [*found[-1:], word]
        return found

    old, new = parts(before), parts(now)
    gone = [part for part in old if part not in new]
    added = [part for part in new if part not in old]
    said = [
        f"{word} {' '.join(part)}" for word, part in (("without", gone), ("with", added)) if part
    ]
    return "; ".join(said)


def goes_on_text(root: Path, command: str) -> str:
    """The text that says which run's data `up` continues; `command` used the directory last."""
    by = {"demo": "make demo", "up": "make live"}.get(command, "an earlier run")
    return (
        f"goes on with the data that {by} left in {root}/\n"
        "(to begin with nothing: make live DIR=other, --dir other)"
    )


def check_replaceable(root: Path) -> None:
    """Raises DirectoryRefused when `root` holds messages that `up` collected, or that it is not
    known by which command, which emptying would delete. The text names their topics, first those
    that no frontend sends."""
    topics = collected_topics(root)
    if last_command(root)[0] == "demo" or not topics:
        return
    own = topics - set(TOPICS)
    named = [*sorted(own), *sorted(topics - own)]
    more = f" and {len(named) - TOPICS_NAMED_MAX} more" if len(named) > TOPICS_NAMED_MAX else ""
    raise DirectoryRefused(
        f"{root} holds messages that `make live` goes on with; the demo would delete "
        f"them: topics {', '.join(named[:TOPICS_NAMED_MAX])}{more}; choose another directory "
        "(make demo DIR=var-demo, --dir var-demo), or delete it (make demo FRESH=1, --fresh)"
    )


def is_ours(root: Path) -> bool:
    """Whether `root` may be emptied: a deployment made it, or it has no entries. A directory `run`
    alone is no evidence: /var has one."""
    if not any(entry.name not in KEPT for entry in root.iterdir()):
        return True
    # Deployments from before the mark have the second file.
    return (root / MARK).is_file() or (root / "run" / "restarts.json").is_file()


def clean(root: Path, input_path: str = "") -> None:
    """Empty `root`, which `check_root` has accepted and this process holds; an input in it
    stays."""
    end_leftovers(root)
    inputs = set(inputs_under(root, input_path))
    for entry in root.iterdir():
        if entry.name in KEPT or entry in inputs:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    (root / "run").mkdir(exist_ok=True)
