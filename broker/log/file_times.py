"""What the modification times of segments mean when the clock was set between two starts.

Ages go by the clock of this process; the times in files outlive it. When a file is newer than the
clock at the start, either the clock is behind now, or it was ahead then: which of the two cannot be
known. So neither may make anything older than it is:

 - a time in the future counts from the newest one, which is taken for the present;
 - a time in the past counts from the clock;
 - times that are written from now on continue from the newest one, so that a later start with the
   right clock does not take the data for older than it is by the clock's error.

When the wall clock is put right while the process runs, by moving it forward, the times that the
process leaves in files are right from then on.

A clock that is ahead at a start cannot be told from a long downtime, and old data goes.
"""

from kafka2011.runtime.clock import Clock


class FileTimes:
    """Translates between the times in files and those of `clock`; call `begin` first.

    `clock` is what ages go by, `wall` the machine's own, which may have been set since.
    """

    def __init__(self, clock: Clock, wall: Clock) -> None:
        self.ahead_ms = 0
        self._clock = clock
        self._wall = wall
        self._began_ms = 0

    def begin(self, newest_ms: int) -> None:
        """Begin; `newest_ms` is the latest time that earlier processes left."""
        self._began_ms = self._clock()
        self.ahead_ms = max(0, newest_ms - self._began_ms)

    def from_file(self, time_ms: int) -> int:
        """The time by this process's clock; never after its start."""
        return time_ms if time_ms <= self._began_ms else time_ms - self.ahead_ms

    def to_file(self, time_ms: int) -> int:
        """The time to leave in a file for something that happened in this process."""
        return time_ms + max(self.ahead_ms, self._wall() - self._clock())
