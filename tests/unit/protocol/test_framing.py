"""The size of a frame: what may be received is decided before anything is kept."""

import pytest

from kafka2011.protocol.errors import FrameTooLarge, RemoteProtocolError
from kafka2011.protocol.framing import check_frame_size


@pytest.mark.parametrize("size", [1, 4, 5])
def test_a_size_up_to_the_limit_is_accepted(size: int) -> None:
    assert check_frame_size(size, 5) == size


@pytest.mark.parametrize("size", [0, -1, -(2**31)])
def test_a_size_of_nothing_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"frame size {size}") as caught:
        check_frame_size(size, 5)
    assert type(caught.value) is RemoteProtocolError


@pytest.mark.parametrize("size", [6, 104857601, 2**31 - 1])
def test_a_size_above_the_limit_is_refused(size: int) -> None:
    with pytest.raises(FrameTooLarge, match=f"frame of {size} bytes is above the limit of 5"):
        check_frame_size(size, 5)
