"""The fields that requests are made of, written once; `requests` has the requests in words."""

from struct import Struct
from typing import Final

REQUEST_ID: Final = Struct(">h")
REQUEST_ID_BYTES: Final = REQUEST_ID.size
COUNT: Final = Struct(">h")  # of a request's parts
TOPIC_LENGTH: Final = Struct(">h")
PARTITION: Final = Struct(">i")
SET_SIZE: Final = Struct(">i")
LIMITS: Final = Struct(">qi")  # offset or time, max size or max count
WAIT: Final = Struct(">i")  # of a WaitingFetch, ms

# A whole frame's start up to its first topic or part.
FRAME_HEADER: Final = Struct(">ih")  # frame size, request id
MULTI_FRAME_HEADER: Final = Struct(">ihh")  # frame size, request id, count
PRODUCE_FRAME_HEADER: Final = Struct(">ihh")  # frame size, request id 0, topic length
# What stands between topic and set in a Produce request.
PRODUCE_TAIL: Final = Struct(">ii")  # partition, set size
