"""The settings of `kafka2011 tail`: the producer's, and how files are followed."""

from dataclasses import dataclass
from pathlib import Path

from kafka2011.producer.config import INT_MAX, ProducerConfig
from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.names import check_topic
from kafka2011.runtime.config import REQUIRED, one_of, path, setting, text, whole


@dataclass(frozen=True, kw_only=True)
class TailConfig(ProducerConfig):
    """One tailer process."""

    topic: str = setting("tail.topic", REQUIRED, text, "the topic that the lines go to")
    state_file: Path | None = setting(
        "tail.state", None, path, "where the positions are kept; unset: ~/.kafka2011/tail-TOPIC"
    )
    start: str = setting(
        "tail.from",
        "start",
        one_of("start", "end"),
        "where files without a position begin that are there at the start; later ones: start",
    )
    key: str = setting(
        "tail.key",
        "path",
        one_of("path", "none"),
        "path: a file's lines go to one partition, in order (zk.connect); none: to any",
    )
    poll_ms: int = setting("tail.poll.ms", 250, whole(1, INT_MAX), "pause when nothing is new, ms")
    gone_wait_ms: int = setting(
        "tail.gone.wait.ms",
        5000,
        whole(0, INT_MAX),
        "a file that is renamed away or deleted is finished when it was quiet for so long, ms",
    )
    line_bytes_max: int = setting(
        "tail.line.bytes.max", 1_000_000, whole(1, INT_MAX), "longer lines are sent in pieces"
    )
    files_max: int = setting(
        "tail.files.max", 500, whole(1, 100_000), "files that are followed at once"
    )
    retry_max_ms: int = setting(
        "tail.retry.max.ms", 5000, whole(1, INT_MAX), "longest pause while brokers are away, ms"
    )
    give_up_ms: int = setting(
        "tail.give.up.ms",
        60_000,
        whole(1, INT_MAX),
        "with --until-end: end when the brokers were away for so long, ms",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.zk_connect and not self.broker_list:
            raise ValueError("say where the brokers are: --zookeeper or --broker-list")
        if self.line_bytes_max > self.payload_bytes_max:
            object.__setattr__(self, "line_bytes_max", self.payload_bytes_max)
        try:
            check_topic(self.topic, "0.7")
        except KafkaError as error:
            raise ValueError(str(error)) from None
