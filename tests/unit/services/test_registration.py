"""What a service enters as its address is something that others can dial."""

import socket

import pytest

from kafka2011.services.registration import dialable_address


@pytest.mark.parametrize(
    ("address", "entered"),
    [
        ("127.0.0.1:8081", "127.0.0.1:8081"),
        ("registry.example:8081", "registry.example:8081"),
        ("0.0.0.0:8081", f"{socket.gethostname()}:8081"),
        (":::8081", f"{socket.gethostname()}:8081"),
        ("", ""),
    ],
)
def test_a_wildcard_is_entered_as_this_host(address: str, entered: str) -> None:
    assert dialable_address(address) == entered
