"""The settings that every process has: its name, its datacenter, its metrics port, its logs."""

from dataclasses import dataclass

from kafka2011.runtime.config import comma_list, one_of, setting, text, whole


@dataclass(frozen=True, kw_only=True)
class ProcessConfig:
    """Base of every process's configuration. Subclasses check values in `__post_init__`, and call
    super's, since groups of shared settings have checks of their own."""

    process_name: str = setting(
        "process.name",
        "",
        text,
        "name in log lines and in the process registry; empty: not registered",
    )
    datacenter: str = setting(
        "datacenter", "live", one_of("live", "offline"), "datacenter of this process"
    )
    metrics_bind: str = setting(
        "metrics.bind", "127.0.0.1", text, "address of the /metrics and /healthz server"
    )
    metrics_port: int = setting(
        "metrics.port", -1, whole(-1, 65535), "port of that server; 0: any free port, -1: no server"
    )
    http_hosts: tuple[str, ...] = setting(
        "http.hosts",
        (),
        comma_list,
        "names with a dot by which this process's HTTP ports are addressed, comma-separated; "
        "IP addresses, other names and this machine's are accepted anyway",
    )
    log_format: str = setting(
        "log.format", "text", one_of("text", "json"), "form of the log lines on standard error"
    )

    def __post_init__(self) -> None:
        """Check the values. Raises ValueError for values that exclude each other."""
