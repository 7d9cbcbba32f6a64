"""Logs: one event a line on standard error, as key=value or JSON.

The command line calls `configure` once; modules log through `get_logger(__name__)`: an event name
in lower_snake_case (tests/unit/test_log_events.py) with fields. Untrusted text is always a field,
where it is quoted; payloads are never logged.

An application that only imports the clients configures nothing: their events go to the standard
`logging` under the module's name, and by default it shows those from WARNING up.
"""

import logging
import sys
from typing import Any

import structlog


def as_a_library() -> None:
    """Send events to the standard `logging`. Called on import, unless the application has
    configured structlog."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["event"], bool_as_flag=False),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # `configure` may come later
    )
    _quieten_kazoo()


def _quieten_kazoo() -> None:
    """kazoo logs every dropped connection at WARNING, with a stack trace; the errors and session
    events of kafka2011.coordination say the same in one line."""
    logger = logging.getLogger("kazoo")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.ERROR)


if not structlog.is_configured():
    as_a_library()


def configure(
    process: str, *, as_json: bool = False, level: str = "INFO", but: str | None = None
) -> None:
    """Send structlog and the standard `logging` of libraries to standard error.

    `process` is bound to every line. `but` is a module whose events are not shown: the command
    reports them in its own words. Called twice, the second call wins.
    """

    def add_process(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
        # Not a context variable: those are empty in threads that a library starts.
        event["process"] = process
        return event

    shared: list[Any] = [
        add_process,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.processors.LogfmtRenderer(
            key_order=["timestamp", "level", "process", "event"], bool_as_flag=False
        )
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level)),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # the second call wins for loggers in use, too
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(lambda record: record.name != but)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    _quieten_kazoo()


def get_logger(name: str) -> Any:
    """A structlog logger: `log.info("rolled", topic=topic, start_offset=offset)`."""
    return structlog.get_logger(name)
