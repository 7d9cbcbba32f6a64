"""`kafka2011 get-offsets`: ask one broker for a partition's offsets (0.7's GetOffsetShell)."""

import contextlib
from typing import Annotated

import typer

from kafka2011.cli.connections import brokers_here, no_log, server_address
from kafka2011.cli.options import AsJson, Server
from kafka2011.cli.output import complain, fail, print_json
from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.protocol.errors import IllegalTopicName, KafkaError
from kafka2011.protocol.names import check_topic
from kafka2011.runtime import logs
from kafka2011.runtime.shared_settings import INT_MAX

app = typer.Typer(add_completion=False)

LONG_MAX = 2**63 - 1


@app.command()
def run(
    server: Server,
    topic: Annotated[str, typer.Option("--topic", help="topic")],
    time: Annotated[
        int,
        typer.Option(
            "--time",
            min=-2,
            max=LONG_MAX,
            help="ms since the epoch; -1: the end of the log and before, -2: its start",
        ),
    ],
    *,
    partition: Annotated[
        int, typer.Option("--partition", min=0, max=INT_MAX, help="partition number on that broker")
    ] = 0,
    offsets: Annotated[
        int, typer.Option("--offsets", min=1, max=INT_MAX, help="most offsets to print")
    ] = 1,
    socket_timeout_ms: Annotated[
        int,
        typer.Option(
            "--socket-timeout-ms", min=1, max=INT_MAX, help="longest wait for the broker, ms"
        ),
    ] = 10_000,
    as_json: AsJson = False,
) -> None:
    """Print `get N results` and the offsets, newest first: segment starts last written at or before
    that time.

    For example: kafka2011 get-offsets --server kafka://localhost:9092 --topic clicks --time -1

    A broker that has no such topic answers 0 to -1 and -2, as 0.7's does; standard error then says
    so. Status 1 when it does not answer, or hangs up on a partition that it can never have.
    """
    logs.configure("get-offsets", level="WARNING")
    address = server_address(server)
    missing = ""
    try:
        check_topic(topic, "0.7")
        with SimpleConsumer(*address, socket_timeout_ms) as client:
            found = client.get_offsets_before(topic, partition, time, offsets)
            if not any(found):
                with contextlib.suppress(KafkaError):  # the answer is there
                    missing = no_log(client, topic, partition)
    except IllegalTopicName as error:
        fail(str(error), 2)
    except BrokerUnavailable as error:
        hung_up = isinstance(error.__cause__, ConnectionResetError)
        fail(f"{error}{' (does it have this partition?)' if hung_up else brokers_here(address)}")
    except KafkaError as error:
        fail(str(error))
    if missing:
        complain(missing)
    if as_json:
        print_json(found)
        return
    print(f"get {len(found)} results")
    for offset in found:
        print(offset)
