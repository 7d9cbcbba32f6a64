"""A user's program: written with what is promised to stay, and nothing else of kafka2011."""

import sys

from kafka2011 import Consumer, Producer, SimpleConsumer
from kafka2011.producer import NotDurable


def main(port: int) -> None:
    with Producer(broker_list=f"0:127.0.0.1:{port}") as producer:
        producer.send("greetings", [b"hello", b"world"])
        try:
            producer.flush()
        except NotDurable as error:
            sys.exit(f"send these again: {error.unconfirmed}")
    simple = SimpleConsumer("127.0.0.1", port)
    answer = simple.fetch("greetings", 0, offset=0, size_max=1_000_000)
    found: list[tuple[bytes, int]] = list(answer.messages())
    print(found, Consumer.__name__)


if __name__ == "__main__":
    main(int(sys.argv[1]))
