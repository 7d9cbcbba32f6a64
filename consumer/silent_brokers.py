"""Brokers that did not answer: in a round of requests each is waited for once.

For what asks a broker about many partitions, one after the other: each of them would wait for it
for as long, and meanwhile nothing is done for the others.
"""

import contextlib
from collections.abc import Iterator

from kafka2011.consumer.errors import BrokerUnavailable


class SilentBrokers:
    """The brokers that did not answer in one round, such as a load's plan or one look.

    `only_hanging`: a broker that refuses, which takes no time and may be back, is asked again.
    """

    def __init__(self, *, only_hanging: bool = False) -> None:
        self._only_hanging = only_hanging
        self._errors: dict[int, str] = {}  # by broker id

    @contextlib.contextmanager
    def asking(self, broker_id: int) -> Iterator[None]:
        """Requests to a broker. Raises BrokerUnavailable at once if it did not answer earlier ones:
        go on with another broker's."""
        if broker_id in self._errors:
            raise BrokerUnavailable(self._errors[broker_id])
        try:
            yield
        except BrokerUnavailable as error:
            if isinstance(error.__cause__, TimeoutError) or not self._only_hanging:
                self._errors[broker_id] = str(error)
            raise
