"""Decides what a ZooKeeper server is started with: which Java, which jars, which zoo.cfg.

Opens no socket and starts no process; `server.py` does that.
"""

import importlib.util
import os
import shutil
from pathlib import Path

from kafka2011.services.zookeeper.config import ZooKeeperConfig

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

# Only these of PySpark's 200 jars: a short class path halves the start of the JVM. log4j is what
# stands behind slf4j there; netty is loaded by ZooKeeper's metrics and TLS classes.
JAR_PREFIXES = (
    "zookeeper-",
    "slf4j-api-",
    "log4j-api-",
    "log4j-core-",
    "log4j-slf4j2-impl-",
    "metrics-core-",
    "snappy-java-",
    "commons-cli-",
    "netty-",
)

LOG4J_PROPERTIES = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{ISO8601}} %p zookeeper %c{{1}} %m%n
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
# It warns at each start that it runs alone, which is what it was asked to do.
logger.peer.name = org.apache.zookeeper.server.quorum.QuorumPeerMain
logger.peer.level = ERROR
logger.peerconfig.name = org.apache.zookeeper.server.quorum.QuorumPeerConfig
logger.peerconfig.level = ERROR
# ... and for each client that went away without a word, or asked a four-letter word.
# Being asked before it is ready to serve makes it complain of its own socket.
logger.cnxnbase.name = org.apache.zookeeper.server.ServerCnxn
logger.cnxnbase.level = OFF
logger.cnxn.name = org.apache.zookeeper.server.NIOServerCnxn
logger.cnxn.level = ERROR
logger.serverconfig.name = org.apache.zookeeper.server.ServerCnxnFactory
logger.serverconfig.level = ERROR
"""


class JavaMissing(RuntimeError):
    """No usable `java`. The text is one line saying what to install; exit with status 2."""


class JarsMissing(RuntimeError):
    """ZooKeeper's jars were not found. The text is one line; exit with status 2."""


def find_java(java_home: str = "") -> Path:
    """The `java` program: of `java_home` when that is given, else the first on PATH.

    Raises JavaMissing.
    """
    if java_home:
        inside = Path(java_home) / "bin" / "java"
        if os.access(inside, os.X_OK):
            return inside
        raise JavaMissing(
            f"JAVA_HOME={java_home} has no bin/java: unset it, or set it to a Java 17 or newer"
        )
    found = shutil.which("java")
    if found is None:
        raise JavaMissing(
            "ZooKeeper needs Java 17 or newer and there is no java on PATH: install it "
            "(Debian and Ubuntu: apt-get install default-jre-headless) or set JAVA_HOME"
        )
    return Path(found)


def find_jars(jars_dir: str = "") -> list[Path]:
    """The jars of the class path, from `jars_dir` or from the installed PySpark.

    PySpark is located but not imported. Raises JarsMissing.
    """
    directory = Path(jars_dir) if jars_dir else _pyspark_jars()
    jars = sorted(jar for jar in directory.glob("*.jar") if jar.name.startswith(JAR_PREFIXES))
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        raise JarsMissing(f"no zookeeper-*.jar in {directory}: pip install 'kafka2011[spark]'")
    return jars


def _pyspark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise JarsMissing(
            "ZooKeeper's jars come with PySpark, which is not installed: "
            "pip install 'kafka2011[spark]', or set zk.jars.dir"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "jars"


def zoo_cfg(config: ZooKeeperConfig, port: int, *, purges: bool = True) -> str:
    """The text of zoo.cfg for a server with its client port on `port`. `purges`: the server removes
    old snapshots, and prints each."""
    lines: dict[str, object] = {
        "tickTime": config.tick_ms,
        "minSessionTimeout": config.session_timeout_min_ms,
        "maxSessionTimeout": config.session_timeout_max_ms,
        "dataDir": _escaped(config.snapshots),
        "clientPort": port,
        "clientPortAddress": config.bind_address,
        "maxClientCnxns": config.connections_max,
        "4lw.commands.whitelist": "srvr,ruok",
        "admin.enableServer": "false",
        "autopurge.snapRetainCount": 3,
        "autopurge.purgeInterval": int(purges),  # hours, 0: never
    }
    if config.ensemble:
        # Ticks to find a leader and to follow it: 10 s and 5 s with the default tick.
        lines |= {"initLimit": 20, "syncLimit": 10}
        if config.bind_address == "0.0.0.0":
            # In a container the server's own name may resolve to an address that is not up yet.
            lines["quorumListenOnAllIPs"] = "true"
        lines |= {f"server.{number}": place for number, place in config.ensemble.items()}
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _escaped(directory: Path) -> str:
    """A path for zoo.cfg, a Java properties file: ISO 8859-1, where a backslash escapes."""
    units = memoryview(str(directory).encode("utf-16-le", "surrogatepass")).cast("H")
    plain = (chr(unit) if unit < 128 else f"\\u{unit:04x}" for unit in units)
    return "".join("\\\\" if letter == "\\" else letter for letter in plain)


def command(config: ZooKeeperConfig, java: Path, jars: list[Path], conf_dir: Path) -> list[str]:
    """The words that start the JVM; `conf_dir` holds zoo.cfg and log4j2.properties."""
    return [
        str(java),
        f"-Xmx{config.heap_mb}m",
        "-Xss512k",
        # One small heap and a start that counts: the serial collector and the first compiler
        # tier start faster and hold less memory than the JVM's own choice.
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        "-Dzookeeper.admin.enableServer=false",
        # Its transaction log is preallocated; 64 MB a file is for far larger clusters.
        "-Dzookeeper.preAllocSize=4096",
        f"-Dlog4j2.configurationFile={conf_dir / 'log4j2.properties'}",
        "-Dlog4j2.disableJmx=true",
        "-Dzookeeper.jmx.log4j.disable=true",
        "-cp",
        os.pathsep.join(map(str, jars)),
        MAIN_CLASS,
        str(conf_dir / "zoo.cfg"),
    ]
