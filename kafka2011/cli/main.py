"""The `kafka2011` command: finds the module of a subcommand and imports only that one.

Each subcommand is a module with a typer `app`: of this package, or a job of the warehouse, which
spark-submit runs as well. Importing them lazily keeps `kafka2011 broker` from loading Spark and
`kafka2011 --help` under a quarter of a second.
Exit statuses: 0 done; 1 the answer is no (an audit that does not balance, a process that failed);
2 the command or a setting was wrong, with one line that says which.
"""

import difflib
import importlib
import sys

from kafka2011.runtime.config import ConfigError

# name -> (module, one line of help). Order is the order of --help.
COMMANDS: dict[str, tuple[str, str]] = {
    "version": (
        "kafka2011.cli.version",
        "Version, and whether the hot loops are compiled or pure.",
    ),
    "zookeeper": (
        "kafka2011.cli.zookeeper",
        "Run a ZooKeeper server from PySpark's jars; ls, get.",
    ),
    "broker": ("kafka2011.cli.broker", "Run one broker (a 0.7 server.properties works as it is)."),
    "proxy": ("kafka2011.cli.proxy", "Run the TCP proxy: balance, delay, cut, drop messages."),
    "frontend": (
        "kafka2011.cli.frontend",
        "Run a load generator: synthetic activity or an access log.",
    ),
    "online-consumer": (
        "kafka2011.cli.online_consumer",
        "Run a member of an online consumer group.",
    ),
    "mirror": ("kafka2011.cli.mirror", "Run a mirror maker from a source to a target cluster."),
    "audit": (
        "kafka2011.cli.audit",
        "Show whether every message arrived in every tier; or run the service.",
    ),
    "load": (
        "kafka2011.services.warehouse.commands.load",
        "Load new messages into the warehouse, once or every interval.",
    ),
    "report": (
        "kafka2011.services.warehouse.commands.report",
        "Report on a warehouse table: traffic per hour, top paths, errors.",
    ),
    "reports": (
        "kafka2011.services.warehouse.commands.reports",
        "Report on member activity: click-through, searches, abuse.",
    ),
    "stream": (
        "kafka2011.services.warehouse.commands.stream",
        "Run a stream job: windows, joins, the top items of each minute.",
    ),
    "sql": ("kafka2011.cli.sql", "Ask the warehouse, or topics, a question in SQL."),
    "pyspark": (
        "kafka2011.cli.pyspark_shell",
        "A Python prompt with Spark, the warehouse and the topics.",
    ),
    "history": ("kafka2011.cli.history", "Show Spark's pages of jobs that have ended."),
    "schedule": ("kafka2011.cli.schedule", "Run load jobs, reports and streams at their times."),
    "registry": (
        "kafka2011.cli.schema_registry",
        "Run the schema registry (Confluent's REST paths).",
    ),
    "dashboard": ("kafka2011.cli.dashboard", "Show both datacenters live in a browser."),
    "status": (
        "kafka2011.cli.status",
        "List the deployment's processes, which serve, and the groups' lag.",
    ),
    "embedded": (
        "kafka2011.cli.embedded",
        "Run and steer the whole deployment as local processes.",
    ),
    "containers": ("kafka2011.cli.containers", "Run the demo in containers, from a checkout."),
    "topics": (
        "kafka2011.cli.topics",
        "List topics with their partitions, brokers, sizes and ends.",
    ),
    "groups": (
        "kafka2011.cli.groups",
        "List consumer groups: members, owners, offsets, lag and state.",
    ),
    "offsets": (
        "kafka2011.cli.offsets",
        "Get, export, import and reset the offsets of consumer groups.",
    ),
    "console-consumer": ("kafka2011.cli.console_consumer", "Print the messages of a topic."),
    "tail": ("kafka2011.cli.tail", "Follow log files and send each line as a message."),
    "console-producer": (
        "kafka2011.cli.console_producer",
        "Send lines from standard input to a topic.",
    ),
    "get-offsets": ("kafka2011.cli.get_offsets", "Ask one broker for the offsets of a partition."),
    "simple-consumer": (
        "kafka2011.cli.simple_consumer",
        "Read one partition of one broker, without group.",
    ),
    "verify-rebalance": (
        "kafka2011.cli.verify_rebalance",
        "Say whether a group's rebalance is complete.",
    ),
    "replay-log": (
        "kafka2011.cli.replay_log",
        "Produce a topic's messages again, into another topic.",
    ),
    "producer-perf": (
        "kafka2011.cli.producer_perf",
        "Measure producing, with the columns of 0.7's tool.",
    ),
    "consumer-perf": (
        "kafka2011.cli.consumer_perf",
        "Measure consuming, with the columns of 0.7's tool.",
    ),
    "dump-log": (
        "kafka2011.cli.dump_log",
        "Say what is in a segment file and what is wrong with it.",
    ),
}


ABOUT = "The LinkedIn deployment of the 2011 Kafka paper, speaking the Kafka 0.7 protocol."
USAGE = "usage: kafka2011 COMMAND [OPTIONS] (kafka2011 COMMAND --help tells more)"


def help_text() -> str:
    width = max(map(len, COMMANDS)) + 2
    rows = [f"  {name:<{width}}{about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join([ABOUT, "", USAGE, "", "commands:", *rows])


def import_logging_alone() -> None:
    """structlog's part for developers takes rich along wherever that is installed, and typer brings
    it: 4 MB in each process, for tracebacks that none of them prints."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment] # Python's way to say: not to be imported
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]


def run(arguments: list[str]) -> None:
    """Hand the words after the command's name to the command's own typer app."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text())
        sys.exit(0 if arguments else 2)
    name = "version" if arguments[0] == "--version" else arguments[0]
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        print(
            f"kafka2011: no command {name!r}{hint} (kafka2011 --help lists them)", file=sys.stderr
        )
        sys.exit(2)
    import_logging_alone()
    module = importlib.import_module(COMMANDS[name][0])
    module.app(args=arguments[1:], prog_name=f"kafka2011 {name}")


def main() -> None:
    try:
        run(sys.argv[1:])
    except ConfigError as error:
        print(f"kafka2011: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # also while the command's modules are still being loaded
        sys.exit(130)


if __name__ == "__main__":
    main()
