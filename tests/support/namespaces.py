"""Network namespaces as hosts: each with an address of its own, names for all, and no other way.
What one of them sends to another can be lost (`one_way_cut`).

Needs the right to make them (root, as a rule); without it `hosts` skips the test and says why.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ETC = Path("/etc/netns")  # `ip netns exec` lays NAME/hosts over /etc/hosts
ABSENT = "02:00:00:00:00:01"  # no device has it


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def hosts(
    addresses: Mapping[str, tuple[str, ...]], here: tuple[str, ...] = ()
) -> Iterator[dict[str, tuple[str, ...]]]:
    """Host name -> the words before a command that run it there. `addresses` are those of each
    host, with their prefix lengths; its name stands for the last one. `here` are addresses in the
    same network for the test itself, which then reaches the hosts; it calls from the first."""
    mark = f"k{os.getpid()}"
    made = {name: f"{mark}-{name}" for name in addresses}
    switch = f"{mark}-switch"
    names = "127.0.0.1 localhost\n" + "".join(
        f"{own[-1].partition('/')[0]} {name}\n" for name, own in addresses.items()
    )
    try:
        try:
            _ip("netns", "add", switch)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces may not be made here: {error}")
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for number, (name, own) in enumerate(addresses.items()):
            space = made[name]
            _ip("netns", "add", space)
            (ETC / space).mkdir(parents=True)
            (ETC / space / "hosts").write_text(names)
            port = f"port{number}"
            _ip(
                *("-n", switch, "link", "add", port, "type", "veth"),
                *("peer", "name", "eth0", "netns", space),
            )
            _ip("-n", switch, "link", "set", port, "master", "bridge", "up")
            for device in ("lo", "eth0"):
                _ip("-n", space, "link", "set", device, "up")
            for address in own:  # nodad: an IPv6 address may be bound at once
                words = ("nodad",) if ":" in address else ()
                _ip("-n", space, "address", "add", address, "dev", "eth0", *words)
        if here:  # its device goes with the switch
            _ip("link", "add", mark, "type", "veth", "peer", "name", "here", "netns", switch)
            _ip("-n", switch, "link", "set", "here", "master", "bridge", "up")
            _ip("link", "set", mark, "up")
            for address in here:
                _ip("address", "add", address, "dev", mark)
        yield {name: ("ip", "netns", "exec", space) for name, space in made.items()}
    finally:
        for space in (switch, *made.values()):
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                _ip("netns", "delete", space)
            shutil.rmtree(ETC / space, ignore_errors=True)
        with contextlib.suppress(OSError):
            ETC.rmdir()


@contextlib.contextmanager
def one_way_cut(inside: tuple[str, ...], address: str) -> Iterator[None]:
    """What the host (the words before its commands) sends to that address is lost on the way:
    nothing is refused, and what the other sends arrives."""
    neighbour = (*inside, "ip", "neighbour")
    there = (address, "dev", "eth0")
    lost = (*neighbour, "replace", *there, "lladdr", ABSENT, "nud", "permanent")
    subprocess.run(lost, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run((*neighbour, "delete", *there), check=True, capture_output=True)
