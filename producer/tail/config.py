"""The settings of `kafka2011 tail`: the producer's, and those of following files."""

from dataclasses import dataclass
from pathlib import Path

from kafka2011.producer.config import ProducerConfig
from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.names import check_topic
from kafka2011.runtime.config import REQUIRED, one_of, path, setting, text, whole
from kafka2011.runtime.shared_settings import INT_MAX

ENVELOPE_BYTES_MAX = 8192  # of a line's event: its header, and the file's path


@dataclass(frozen=True, kw_only=True)
class TailConfig(ProducerConfig):
    """One tailer process."""

    topic: str = setting("tail.topic", REQUIRED, text, "topic that the lines are sent to")
    state_file: Path | None = setting(
        "tail.state", None, path, "file that keeps the positions; unset: ~/.kafka2011/tail-TOPIC"
    )
    start: str = setting(
        "tail.from",
        "start",
        one_of("start", "end"),
        "where to begin in files of the first start, which has no state yet; later files: start",
    )
    key: str = setting(
        "tail.key",
        "path",
        one_of("path", "none"),
        "path: all lines of a file to one partition, in order (needs zk.connect); none: to any",
    )
    poll_ms: int = setting(
        "tail.poll.ms", 250, whole(1, INT_MAX), "pause when no file has new lines, ms"
    )
    gone_wait_ms: int = setting(
        "tail.gone.wait.ms",
        5000,
        whole(0, INT_MAX),
        "a renamed or deleted file is finished when it had no new lines for this long, ms",
    )
    line_bytes_max: int = setting(
        "tail.line.bytes.max",
        1_000_000,
        whole(1, INT_MAX),
        "longest line, bytes; longer ones are sent in pieces",
    )
    files_max: int = setting(
        "tail.files.max", 500, whole(1, 100_000), "most files followed at once"
    )
    retry_max_ms: int = setting(
        "tail.retry.max.ms",
        5000,
        whole(1, INT_MAX),
        "longest pause between attempts while brokers are unreachable, ms",
    )
    give_up_ms: int = setting(
        "tail.give.up.ms",
        60_000,
        whole(1, INT_MAX),
        "with --until-end: give up after the brokers were unreachable for this long, ms",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.zk_connect and not self.broker_list:
            raise ValueError("the brokers are not named: use --zookeeper or --broker-list")
        limit = self.payload_bytes_max
        if self.audit_enable:  # with a header, and four characters for a byte that is not text
            limit = max(1, (limit - ENVELOPE_BYTES_MAX) // 4)
        if self.line_bytes_max > limit:
            object.__setattr__(self, "line_bytes_max", limit)
        self.check_lines(self.topic)
        try:
            check_topic(self.topic, "0.7")
        except KafkaError as error:
            raise ValueError(str(error)) from None
