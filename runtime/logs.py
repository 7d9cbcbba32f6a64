"""Logs: one event a line, key=value for people or JSON for machines, on standard error.

`configure` is called once by the command line; everything else asks `get_logger(__name__)` and
logs an event name with fields. Untrusted text goes in as a field, where it is quoted; payloads
are never logged.
"""

import logging
import sys
from typing import Any

import structlog


def configure(process: str, *, as_json: bool = False, level: str = "INFO") -> None:
    """Send structlog and the standard `logging` of libraries to standard error.

    `process` is bound to every line. Called twice, the second call wins.
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
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # kazoo tells of every dropped connection at WARNING with a stack trace of its own making;
    # our session listener says the same in one line.
    logging.getLogger("kazoo").setLevel(logging.ERROR)


def get_logger(name: str) -> Any:
    """A structlog logger: `log.info("rolled", topic=topic, start_offset=offset)`."""
    return structlog.get_logger(name)
