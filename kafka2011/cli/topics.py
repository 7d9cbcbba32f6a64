"""`kafka2011 topics`: the topics, their partitions, brokers and sizes; making and forgetting one.

0.7 has no request for either. A topic is made by the first produce request that a broker gets for
it, and `create` sends one without messages to each. A log ends by retention, or by the operator's
hand while its broker is stopped; `delete` refuses while a broker has one, and then removes what is
left in ZooKeeper. No command of this program deletes messages.
"""

import time
from typing import Annotated

import typer

from kafka2011.cli.connections import connected, dialler
from kafka2011.cli.options import AddressMap, AsJson, ZooKeeper
from kafka2011.cli.output import complain, fail, print_json, print_lines, print_table
from kafka2011.consumer.tools.cluster_state import PartitionEnds, groups, partition_ends
from kafka2011.coordination import cluster, paths, processes
from kafka2011.coordination.errors import NotEmpty
from kafka2011.coordination.registry import Registry
from kafka2011.producer import Producer
from kafka2011.protocol.errors import IllegalTopicName, KafkaError
from kafka2011.protocol.names import check_topic
from kafka2011.runtime import logs
from kafka2011.runtime.config import suggestion
from kafka2011.runtime.program import program

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="List, describe and create topics, and forget deleted ones. For example: "
    "kafka2011 topics describe --zookeeper localhost:2181 clicks",
)


REGISTER_TIMEOUT_S = 20.0  # a broker registers a new topic within milliseconds of its first request
POLL_S = 0.05


@app.command("list")
def list_topics(zookeeper: ZooKeeper = "", as_json: AsJson = False) -> None:
    """Print the names of all topics, one a line."""
    logs.configure("topics", level="WARNING")
    with connected(zookeeper) as registry:
        names = cluster.topics(registry)
    if as_json:
        print_json(names)
    else:
        print_lines(names)


@app.command()
def describe(
    topics: Annotated[list[str] | None, typer.Argument(help="only these topics")] = None,
    *,
    zookeeper: ZooKeeper = "",
    address_map: AddressMap = "",
    as_json: AsJson = False,
) -> None:
    """Show each partition's broker, start, end (high watermark) and size in bytes.

    Status 1 when a topic is unknown, or a broker is down or did not answer.
    """
    logs.configure("topics", level="WARNING")
    dialled = dialler(address_map)
    with connected(zookeeper) as registry:
        down = _brokers_down(registry)
        known = cluster.topics(registry)
        unknown = [topic for topic in dict.fromkeys(topics or ()) if topic not in known]
        wanted = [topic for topic in known if topic in topics] if topics else known
        found = partition_ends(registry, wanted, dialled)
    if as_json:
        print_json([_json(ends) for ends in found])
    elif wanted or not unknown:
        _print_table(found, wanted)
    for topic in unknown:
        complain(f"no topic {topic!r}{suggestion(topic, known)}")
    for name in down:
        complain(f"{name} is down: partitions that it alone has are not listed")
    if unknown or down or any(ends.error for ends in found):
        raise SystemExit(1)


@app.command()
def create(
    topics: Annotated[list[str], typer.Argument(help="topics to make")],
    *,
    zookeeper: ZooKeeper = "",
    address_map: AddressMap = "",
    as_json: AsJson = False,
) -> None:
    """Make topics on every live broker before their first message, and describe them.

    How many partitions a topic has is each broker's setting: num.partitions,
    topic.partition.count.map. A broker that starts later makes the topic at its first message. A
    topic that exists stays as it is. Status 1 when a broker does not answer or refuses the name.
    """
    logs.configure("topics", level="WARNING")
    dialled = dialler(address_map)
    topics = list(dict.fromkeys(topics))
    try:
        for topic in topics:
            check_topic(topic)
    except IllegalTopicName as error:
        fail(str(error), 2)
    with connected(zookeeper) as registry:
        brokers = cluster.live_brokers(registry)
        if not brokers:
            fail("no live broker is registered")
        missing = [
            (topic, broker_id)
            for topic in topics
            for broker_id in brokers
            if not registry.exists(paths.topic_broker_path(topic, broker_id))
        ]
        try:
            with Producer(registry=registry, address_map=address_map) as producer:
                for topic, broker_id in missing:
                    producer.send_set(topic, b"", broker_id=broker_id, partition=0)
        except KafkaError as error:
            fail(f"not every broker made the topic: {error}")
        _wait_until_registered(registry, missing)
        found = partition_ends(registry, topics, dialled)
    if as_json:
        print_json([_json(ends) for ends in found])
    else:
        _print_table(found, topics)
    if any(ends.error for ends in found):
        raise SystemExit(1)


def _wait_until_registered(registry: Registry, places: list[tuple[str, int]]) -> None:
    deadline = time.monotonic() + REGISTER_TIMEOUT_S
    for topic, broker_id in places:
        while not registry.exists(paths.topic_broker_path(topic, broker_id)):
            if time.monotonic() > deadline:
                fail(f"broker {broker_id} did not register topic {topic!r}: see its log")
            time.sleep(POLL_S)


@app.command()
def delete(
    topic: Annotated[str, typer.Argument(help="topic to forget")],
    *,
    zookeeper: ZooKeeper = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="remove what is listed; without it, it is only listed")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove a topic's name, and the offsets and counts of groups in it, once no broker has its
    logs.

    Deletes no message: 0.7 has no request for that. First stop each broker that has the topic, move
    LOG.DIR/TOPIC-* away, and start it again (docs/operations.md, Making and deleting a topic).
    Status 1 when a broker has the topic, or one that is down may have it. Run it again if it failed
    half-way.
    """
    logs.configure("topics", level="WARNING")
    with connected(zookeeper) as registry:
        known = cluster.topics(registry)
        found = _left_in_groups(registry, topic)
        if topic not in known and not found:
            fail(f"no topic {topic!r}{suggestion(topic, known)}")
        _refuse_while_stored(registry, topic)
        if yes:
            # The name goes last: as long as it is there, the rest is found again.
            for path in found:
                registry.delete_recursive(path)
            try:
                registry.delete(paths.topic_path(topic))
            except NotEmpty:
                fail(
                    f"a broker has made topic {topic!r} again: its name stays, what groups had of "
                    "the old one is removed"
                )
        if topic in known:
            found.append(paths.topic_path(topic))
    if as_json:
        print_json({"topic": topic, "removed": yes, "nodes": found})
    else:
        print_lines(found)
    if not yes:
        fail("nothing was removed: --yes removes these nodes with what is below them")


def _left_in_groups(registry: Registry, topic: str) -> list[str]:
    """The nodes of a topic's offsets, owners, counts and tails, which a new topic of that name
    would inherit."""
    places = [
        path
        for group in groups(registry)
        for path in (paths.offsets_path(group, topic), paths.owners_path(group, topic))
    ]
    counting = registry.children(paths.COUNTS)
    places += [f"{paths.counts_root(group)}/{topic}" for group in counting]
    places += [paths.tails_path(group, topic) for group in registry.children(paths.TAILS)]
    return [path for path in places if registry.exists(path)]


def _refuse_while_stored(registry: Registry, topic: str) -> None:
    """Exits with status 1 while a broker has logs of the topic, or may have when it starts."""
    holders = ", ".join(registry.children(paths.topic_path(topic)))
    if holders:
        fail(
            f"topic {topic!r} has logs on broker {holders}, and no request of 0.7 deletes a log: "
            f"stop each, move LOG.DIR/{topic}-* away, start it, then run this again"
        )
    for name in _brokers_down(registry):
        fail(
            f"{name} is down and may have logs of topic {topic!r}: start it, or take it "
            f"out for good with {program()} status --forget {name}"
        )


def _brokers_down(registry: Registry) -> list[str]:
    """Names of the brokers that are expected and do not run."""
    known = processes.expected(registry)
    alive = {(one.datacenter, one.name) for one in processes.alive(registry, known)}
    brokers = [one for one in known if one.kind == "broker"]
    return [one.name for one in brokers if (one.datacenter, one.name) not in alive]


def _json(ends: PartitionEnds) -> dict[str, object]:
    return {
        "topic": ends.name.topic,
        "broker": ends.name.broker_id,
        "partition": ends.name.partition,
        "address": f"{ends.address.host}:{ends.address.port}" if ends.address else None,
        "start": ends.start,
        "end": ends.end,
        "size": ends.size_bytes,
        "error": ends.error or None,
    }


def _print_table(found: list[PartitionEnds], topics: list[str]) -> None:
    rows: list[tuple[object, ...]] = []
    for ends in found:
        address = f"{ends.address.host}:{ends.address.port}" if ends.address else "?"
        place = f"{ends.name.broker_id}-{ends.name.partition}"
        size = ends.error or ends.size_bytes
        rows.append((ends.name.topic, place, address, ends.start, ends.end, size))
    for topic in topics:
        if not any(ends.name.topic == topic for ends in found):
            rows.append((topic, "on no live broker", "", "", "", ""))
    print_table(
        ("topic", "partition", "broker", "start", "end", "size"),
        rows,
        numbers=("start", "end", "size"),
    )
