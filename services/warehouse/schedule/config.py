"""The settings of `kafka2011 schedule`. Its jobs read their own from the same environment."""

from dataclasses import dataclass

from kafka2011.runtime.process_config import ProcessConfig


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig(ProcessConfig):
    """The schedule (`kafka2011 schedule FILE`); `metrics.port` serves the state of its jobs."""
