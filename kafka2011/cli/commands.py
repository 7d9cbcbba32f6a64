"""The table of commands: `kafka2011 NAME` is a row here, in the order of `kafka2011 --help`.

A row holds names only and imports nothing, so that `kafka2011 broker` loads no Spark and --help is
immediate. A command is either a module with a typer `app`, or a `Process`: a program that runs
until SIGTERM with the settings of one configuration class.
"""

from dataclasses import dataclass

SPARK = "spark"
SQL = "sql"
WEB = "web"


@dataclass(frozen=True)
class ShortOption:
    """An option of the command line that stands for one setting."""

    flag: str
    setting: str
    type: type
    help: str


@dataclass(frozen=True)
class Process:
    """`kafka2011 NAME [FILE] [--set NAME=VALUE]...`: loads the settings, then runs `entry`."""

    config_class: str  # module:class
    entry: str  # module:function of (configuration, stop event), returns the exit status
    help: str
    options: tuple[ShortOption, ...] = ()


@dataclass(frozen=True)
class Serves:
    """The process that a module with other subcommands runs as the subcommand `word`."""

    process: Process
    word: str
    is_default: bool = False  # also without the word


@dataclass(frozen=True)
class Command:
    """One row of `kafka2011 --help`."""

    about: str
    run: str | Process  # the module with the typer `app`, or the process
    extra: str = ""  # the optional dependencies that it needs
    serves: Serves | None = None
    # module:function of (the words of --set, the properties file): the settings, as NAME=VALUE,
    # that the deployment in the current directory has. The command gets it as its context's `obj`.
    settings_here: str = ""


BROKER = Process(
    "kafka2011.broker.config:BrokerConfig",
    "kafka2011.cli.launcher:serve_broker",
    "Run one broker; a server.properties of 0.7 works as it is. SIGTERM stops it cleanly "
    "(exit status 0).",
)
PROXY = Process(
    "kafka2011.services.proxy.config:ProxyConfig",
    "kafka2011.services.proxy.app:run",
    "Relay TCP connections until SIGTERM. Faults are set on the metrics port (/faults).",
    (
        ShortOption(
            "--routes",
            "proxy.routes",
            str,
            "NAME=listen:port>target:port|target:port,...; NAME= is optional",
        ),
    ),
)
FRONTEND = Process(
    "kafka2011.services.frontend.config:FrontendConfig",
    "kafka2011.services.frontend.app:run",
    "Run a load generator: source=synthetic (seed, rate) or source=access-log (input.path).\n\n"
    "Needs broker.list (id:host:port of a load balancer or of brokers) or zk.connect. Sent "
    "messages are recorded in data.dir: after a restart, it continues behind the last message "
    "that the brokers have on disk.",
)
ONLINE_CONSUMER = Process(
    "kafka2011.services.online_consumer.config:OnlineConsumerConfig",
    "kafka2011.services.online_consumer.app:run",
    "Read events as they arrive, as a member of a consumer group. Counts, lag and latency are on "
    "the metrics port.",
)
SITE = Process(
    "kafka2011.services.site.config:SiteConfig",
    "kafka2011.services.site.app:run",
    "Compute from the live events what the dashboard's page Site shows: trending, search, ads, "
    "abuse, newsfeed. Each is a consumer group of its own, and writes a topic, site-...",
)
REGISTRY = Process(
    "kafka2011.services.schema_registry.config:SchemaRegistryConfig",
    "kafka2011.services.schema_registry.app:run",
    "Serve Avro schemas and their ids, and check the compatibility of new versions, under "
    "Confluent's REST paths.",
    (
        ShortOption("--port", "registry.port", int, "port to listen on; 0: any free port"),
        ShortOption("--data-dir", "data.dir", str, "directory of registry.sqlite"),
    ),
)
DASHBOARD = Process(
    "kafka2011.services.dashboard.config:DashboardConfig",
    "kafka2011.services.dashboard.app:run",
    "Serve the dashboard of both datacenters, by default at http://127.0.0.1:8088. It changes "
    "nothing unless dashboard.chaos=on.",
    (ShortOption("--port", "dashboard.port", int, "port of the dashboard; 0: any free port"),),
)
ZOOKEEPER = Process(
    "kafka2011.services.zookeeper.config:ZooKeeperConfig",
    "kafka2011.cli.launcher:serve_zookeeper",
    "Run one ZooKeeper server. Needs Java 17 or newer; the jars come with PySpark.",
)
MIRROR = Process(
    "kafka2011.services.mirror_maker.config:MirrorConfig",
    "kafka2011.cli.launcher:serve_mirror",
    "Run one member of a mirror.",
)
AUDIT = Process(
    "kafka2011.services.audit.config:AuditConfig",
    "kafka2011.services.audit.app:run",
    "Run the audit service until SIGTERM.",
)

WAREHOUSE = "kafka2011.services.warehouse.commands"

COMMANDS: dict[str, Command] = {
    "version": Command(
        "Print the version, and whether the hot loops are compiled.", "kafka2011.cli.version"
    ),
    "settings": Command(
        "List the settings of a process: names, defaults, units.", "kafka2011.cli.settings"
    ),
    "zookeeper": Command(
        "Run a ZooKeeper server from PySpark's jars; ls, get.",
        "kafka2011.cli.zookeeper",
        serves=Serves(ZOOKEEPER, "serve", is_default=True),
    ),
    "broker": Command("Run one broker (a 0.7 server.properties works as it is).", BROKER),
    "proxy": Command("Run the TCP proxy: balance, delay, cut, drop messages.", PROXY),
    "frontend": Command("Run a load generator: synthetic activity or an access log.", FRONTEND),
    "online-consumer": Command("Run a member of an online consumer group.", ONLINE_CONSUMER),
    "site": Command("Compute what the site shows of its events, live.", SITE),
    "mirror": Command(
        "Run a mirror maker from a source to a target cluster.",
        "kafka2011.cli.mirror",
        serves=Serves(MIRROR, "run", is_default=True),
    ),
    "audit": Command(
        "Show whether every message arrived in every tier; or run the service.",
        "kafka2011.cli.audit",
        serves=Serves(AUDIT, "serve"),
    ),
    "trace": Command(
        "Show where one message is: its way through every tier.", "kafka2011.cli.trace"
    ),
    "load": Command(
        "Load new messages into the warehouse, once or repeatedly.",
        f"{WAREHOUSE}.load",
        SPARK,
        settings_here="kafka2011.cli.connections:load_settings_here",
    ),
    "report": Command(
        "Report on a warehouse table: traffic per hour, top paths, errors.",
        f"{WAREHOUSE}.report",
        SPARK,
        settings_here="kafka2011.cli.connections:tables_here",
    ),
    "reports": Command(
        "Report on member activity: click-through, searches, abuse.",
        f"{WAREHOUSE}.reports",
        SPARK,
        settings_here="kafka2011.cli.connections:tables_here",
    ),
    "stream": Command(
        "Run a stream job: windows, joins, the top items of each minute.",
        f"{WAREHOUSE}.stream",
        SPARK,
        settings_here="kafka2011.cli.connections:stream_settings_here",
    ),
    "sql": Command("Run an SQL statement on the warehouse or topics.", "kafka2011.cli.sql", SQL),
    "pyspark": Command(
        "Open a Python prompt with Spark, the warehouse and the topics.",
        "kafka2011.cli.pyspark_shell",
        SPARK,
    ),
    "warehouse": Command(
        "Check whether an object store can hold the warehouse.", "kafka2011.cli.warehouse", SQL
    ),
    "history": Command(
        "Serve Spark's pages of jobs that have ended.", "kafka2011.cli.history", SPARK
    ),
    "schedule": Command(
        "Run load jobs, reports and streams at set times.", "kafka2011.cli.schedule"
    ),
    "registry": Command("Run the schema registry (Confluent's REST paths).", REGISTRY, WEB),
    "schema": Command(
        "Register, list, show, check and compare a topic's Avro schemas.", "kafka2011.cli.schema"
    ),
    "dashboard": Command("Show both datacenters live in a browser.", DASHBOARD, WEB),
    "status": Command(
        "List the deployment's processes, their health, and the groups' lag.",
        "kafka2011.cli.status",
    ),
    "embedded": Command(
        "Run and control the whole deployment as local processes.", "kafka2011.cli.embedded"
    ),
    "install-unit": Command(
        "Make a systemd unit for a process of this host.", "kafka2011.cli.install_unit"
    ),
    "containers": Command("Run the demo in containers, from a clone.", "kafka2011.cli.containers"),
    "topics": Command(
        "List, describe, create topics; forget deleted ones.", "kafka2011.cli.topics"
    ),
    "replicas": Command(
        "Show, make, change and verify replica sets of brokers.", "kafka2011.cli.replicas"
    ),
    "groups": Command(
        "List consumer groups, and describe one: members, owners, offsets, lag and state.",
        "kafka2011.cli.groups",
    ),
    "offsets": Command(
        "Get, export, import and reset the offsets of consumer groups.", "kafka2011.cli.offsets"
    ),
    "console-consumer": Command("Print the messages of a topic.", "kafka2011.cli.console_consumer"),
    "tail": Command("Follow log files and send each line as a message.", "kafka2011.cli.tail"),
    "console-producer": Command(
        "Send lines from standard input to a topic.", "kafka2011.cli.console_producer"
    ),
    "get-offsets": Command(
        "Print offsets of a partition, from its broker.", "kafka2011.cli.get_offsets"
    ),
    "simple-consumer": Command(
        "Read one partition from its broker, without a group.", "kafka2011.cli.simple_consumer"
    ),
    "verify-rebalance": Command(
        "Check whether a group's rebalance is complete.", "kafka2011.cli.verify_rebalance"
    ),
    "replay-log": Command(
        "Produce a topic's messages again, to another topic.", "kafka2011.cli.replay_log"
    ),
    "producer-perf": Command(
        "Measure producing, with the columns of 0.7's tool.", "kafka2011.cli.producer_perf"
    ),
    "consumer-perf": Command(
        "Measure consuming, with the columns of 0.7's tool.", "kafka2011.cli.consumer_perf"
    ),
    "dump-log": Command("Print and check the entries of a segment file.", "kafka2011.cli.dump_log"),
}
