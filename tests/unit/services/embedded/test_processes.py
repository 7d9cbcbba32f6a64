"""Ports that stay, and their substitutes."""

import socket

from kafka2011.services.embedded.processes import Ports
from tests.support.commands import held_port


def test_ports_are_the_same_unless_taken_or_another_deployment_has_the_base() -> None:
    base = held_port() - 1
    with Ports(base) as first:
        assert first.at(1) == base + 1
        assert first.at(1) != base + 1, "given once already"
        with Ports(base) as second:
            assert second.at(1) != base + 1
        assert (first.is_second, second.is_second) == (False, True)
    with socket.socket() as other, Ports(base) as again:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", base + 1))
        other.listen()
        assert again.at(1) != base + 1
        assert again.taken == [base + 1]
    with Ports(base) as again, Ports(0) as any_ports:
        assert again.at(1) == base + 1
        assert any_ports.at(1) > 1
        assert not any_ports.is_second


def test_a_port_is_one_deployments_before_it_listens_there() -> None:
    """Two that started together both named the dashboard's, and one showed the other's page."""
    port = held_port()
    with Ports(0) as first, Ports(0) as second:
        assert first.take(port)
        assert not second.take(port)
    with socket.socket() as other, Ports(0) as again:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        assert not again.take(port)
    with Ports(0) as again:
        assert again.take(port)
