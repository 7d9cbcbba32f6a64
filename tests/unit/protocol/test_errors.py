"""Codes on the wire and errors in the program."""

import pytest

from kafka2011.protocol import errors


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (-1, errors.UnknownBrokerError),
        (1, errors.OffsetOutOfRange),
        (2, errors.InvalidMessage),
        (3, errors.WrongPartition),
        (4, errors.InvalidFetchSize),
        (5, errors.UnknownBrokerError),
        (-2, errors.UnknownBrokerError),
        (32767, errors.UnknownBrokerError),
    ],
)
def test_codes_become_errors(code: int, kind: type[errors.KafkaError]) -> None:
    error = errors.error_for_code(code, "fetch of test/0 at 5")
    assert type(error) is kind
    assert "fetch of test/0 at 5" in str(error)
    assert str(code) in str(error)
    assert not error.retriable


def test_who_is_at_fault_shows_in_the_class() -> None:
    assert issubclass(errors.InvalidMessage, errors.RemoteProtocolError)
    assert issubclass(errors.DecompressedSizeTooLarge, errors.InvalidMessage)
    assert issubclass(errors.FrameTooLarge, errors.RemoteProtocolError)
    assert issubclass(errors.IllegalTopicName, errors.LocalProtocolError)
    assert not issubclass(errors.MessageSizeTooLarge, errors.ProtocolError)
    assert issubclass(errors.MessageLargerThanFetchSize, errors.InvalidFetchSize)
