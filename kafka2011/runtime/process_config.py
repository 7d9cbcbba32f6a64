"""The settings that every process has: its name, its datacenter, its metrics port, its logs."""

from dataclasses import dataclass

from kafka2011.runtime.config import one_of, setting, text, whole


@dataclass(frozen=True, kw_only=True)
class ProcessConfig:
    """Base of every process's configuration."""

    process_name: str = setting(
        "process.name", "", text, "name in logs and in the process registry; empty: not registered"
    )
    datacenter: str = setting(
        "datacenter", "live", one_of("live", "offline"), "the datacenter this process stands in"
    )
    metrics_bind: str = setting(
        "metrics.bind", "127.0.0.1", text, "address of the /metrics and /healthz server"
    )
    metrics_port: int = setting(
        "metrics.port", -1, whole(-1, 65535), "its port; 0 takes a free one, -1 runs none"
    )
    log_format: str = setting(
        "log.format", "text", one_of("text", "json"), "form of the log lines on standard error"
    )
