"""What a consumer counts, for logs and for the metrics of its process.

Plain numbers, each with one thread that adds to it; reading them from another is always safe.
"""

from dataclasses import asdict, dataclass


@dataclass
class ConsumerStats:
    """Everything since the start of the connector."""

    fetch_requests: int = 0
    fetched_chunks: int = 0
    fetched_bytes: int = 0
    offset_resets: int = 0  # positions that the log did not hold, moved by autooffset.reset
    offset_reset_bytes: int = 0  # how far they were moved forward: what was skipped
    replaced_logs: int = 0  # of these: the log was another one, which had outgrown the position
    fetch_size_growths: int = 0
    damaged_chunks: int = 0  # CRC or form wrong; each is fetched again before it is an error
    stuck_partitions: int = 0  # PartitionStuck errors
    broker_failures: int = 0  # fetches that failed on the way
    rebalances: int = 0
    rebalance_failures: int = 0
    commits: int = 0
    commit_failures: int = 0
    commits_refused: int = 0
    suspensions: int = 0  # times that delivery stopped because the session might be gone

    def as_dict(self) -> dict[str, int]:
        return asdict(self)
