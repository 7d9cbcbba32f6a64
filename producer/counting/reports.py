"""The payloads that a counting producer sends to topic `audit`, made of its journal's state. Pure.

The frontends send them on the connections of their events, a `Producer` with `audit.enable` on
connections of its own (`sent_counts`).
"""

from kafka2011.events.monitoring import REPEATED, encode_heartbeat, encode_monitoring
from kafka2011.producer.counting.journal import JournalledEvent, JournalState


def monitoring_payload(state: JournalState, event: JournalledEvent, service: str) -> bytes:
    """One journalled monitoring event; the same bytes each time that it is sent."""
    return encode_monitoring(
        server=state.server,
        service=service,
        instance=state.instance,
        sequence=event.sequence,
        time_ms=event.time_ms,
        window_ms=state.window_ms,
        counts=event.counts,
    )


def heartbeat_payload(
    state: JournalState,
    service: str,
    *,
    time_ms: int,
    interval_ms: int,
    is_last: bool,
    repeated_ms: int = 0,
) -> bytes:
    """A heartbeat; the last one is the goodbye, with the sequence of the last monitoring event.

    `repeated_ms`: when messages were last sent again; 0: none were.
    """
    return encode_heartbeat(
        server=state.server,
        service=service,
        instance=f"{state.instance}{REPEATED}{repeated_ms}" if repeated_ms else state.instance,
        time_ms=time_ms,
        interval_ms=interval_ms,
        is_last=is_last,
        last_sequence=state.next_sequence - 1 if is_last else -1,
    )
