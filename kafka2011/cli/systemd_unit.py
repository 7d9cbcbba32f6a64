"""The text of a systemd unit for one process, as a pure function of its settings and paths.

A unit restarts what failed, except by a wrong setting (status 2); lets the process write to its own
directories and nowhere else; and bounds its descriptors and memory. What a host needs otherwise
belongs in a drop-in (`systemctl edit`), so that the unit itself can be made anew.
"""

from dataclasses import dataclass
from pathlib import Path

MARK = "# Made by kafka2011 install-unit: put changes into a drop-in (systemctl edit)."
STATE_DIRECTORY = Path("/var/lib/kafka2011")
# What the sandbox hides (ProtectHome=) or replaces by an empty directory (PrivateTmp=).
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 (names, not files)
MIB = 1 << 20

# Nothing here needs a capability, a device, a namespace or a change of the kernel's settings.
HARDENING = """\
NoNewPrivileges=true
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=true
ProtectProc=invisible
ProtectClock=true
ProtectHostname=true
ProtectKernelTunables=true
ProtectKernelModules=true
ProtectKernelLogs=true
ProtectControlGroups=true
PrivateTmp=true
PrivateDevices=true
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=true
RestrictRealtime=true
RestrictSUIDSGID=true
LockPersonality=true
RemoveIPC=true
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
UMask=0027"""


class CannotRun(ValueError):
    """Settings with which the process could not work in the unit. The text is one line."""


@dataclass(frozen=True)
class Kind:
    """What is special about the unit of one kind of process.

    `writes` are the settings of the directories that it writes to. `limit` is its limit of memory:
    MemoryMax, or LimitDATA for a broker, since MemoryMax counts the page cache, which serves reads.
    """

    writes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # of the command; default: the name of the kind
    limit: str = f"MemoryMax={1024 * MIB}"
    open_files: int = 16_384
    stop_timeout_s: int = 60


KINDS = {
    "zookeeper": Kind(("data.dir", "zk.snapshot.dir"), limit=f"MemoryMax={2048 * MIB}"),
    "broker": Kind(("log.dir", "quarantine.dir"), limit="", open_files=65_536),
    "registry": Kind(("data.dir",)),
    "mirror": Kind(),
    "load": Kind(
        ("warehouse.dir", "report.dir", "spark.event.log.dir"),
        limit=f"MemoryMax={4096 * MIB}",
        open_files=65_536,
        stop_timeout_s=300,  # a load that runs is finished
    ),
    "audit": Kind(("data.dir",), ("audit", "serve")),
    "dashboard": Kind(),
    "proxy": Kind(),
    "frontend": Kind(("data.dir",)),
    "online-consumer": Kind(),
    "site": Kind(("data.dir",)),
}


@dataclass(frozen=True)
class Unit:
    """A unit to be rendered. `directories` are those that the process writes to."""

    name: str
    kind: str
    program: Path
    file: Path
    user: str
    directories: tuple[Path, ...]
    buffer_bytes: int = 0  # a broker's buffered.request.bytes.max


def outside(directories: tuple[Path, ...]) -> list[Path]:
    """The directories outside the state directory, which systemd makes; sorted."""
    return sorted({path for path in directories if not path.is_relative_to(STATE_DIRECTORY)})


def render(unit: Unit) -> str:
    """The unit's text.

    Raises CannotRun for a path that the sandbox hides, and for one that a unit cannot name.
    """
    for path in (unit.program, unit.file, *unit.directories):
        hidden = next((base for base in HIDDEN if path.is_relative_to(base)), None)
        if hidden:
            raise CannotRun(
                f"{path} is below {hidden}, which the unit hides from its process: move it, for "
                "example to /opt, /etc or /srv"
            )
        if not path.is_absolute() or set(str(path)) & set(" \t\n\"'\\%$"):
            raise CannotRun(f"{path} must be an absolute path without blanks, quotes, \\, % and $")
    kind = KINDS[unit.kind]
    command = " ".join([str(unit.program), *(kind.words or (unit.kind,)), str(unit.file)])
    others = " ".join(map(str, outside(unit.directories)))
    limit = kind.limit or f"LimitDATA={512 * MIB + 2 * unit.buffer_bytes}"
    lines = [
        MARK,
        "[Unit]",
        f"Description=kafka2011 {unit.name}",
        "Wants=network-online.target",
        "After=network-online.target",
        # Without its disk a broker would begin an empty log.
        f"RequiresMountsFor={others}" if others else "",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        f"User={unit.user}",
        f"ExecStart={command}",
        f"StateDirectory={STATE_DIRECTORY.name}",
        "StateDirectoryMode=0750",
        f"WorkingDirectory={STATE_DIRECTORY}",
        f"ReadWritePaths={others}" if others else "",
        "Restart=on-failure",
        "RestartSec=5",
        "RestartPreventExitStatus=2",
        # SIGTERM goes to the process alone: it stops its JVM when its work is done.
        "KillMode=mixed",
        f"TimeoutStopSec={kind.stop_timeout_s}",
        f"LimitNOFILE={kind.open_files}",
        "LimitCORE=0",
        "TasksMax=2048",
        limit,
        f"SyslogIdentifier=kafka2011-{unit.name}",
        HARDENING,
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    kept = [line for line, before in zip(lines, ["-", *lines], strict=False) if line or before]
    return "\n".join(kept) + "\n"
