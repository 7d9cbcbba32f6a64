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

Lookups by time go by the times of files, since clients ask by the wall clock, which the clock for
ages follows slowly. A time that proves too late has a reader read too much; one that is too early
would have it skip messages.
"""

from kafka2011.runtime.clock import Clock


class FileTimes:
    """Translates between the times in files and those of `clock`; call `begin` first.

    `clock` is what ages go by, `wall` the machine's own, which may have been set since.
    """

    def __init__(self, clock: Clock, wall: Clock) -> None:
        self.ahead_ms = 0
        self.wall = wall
        self._clock = clock
        self._began_ms = 0

    def begin(self, newest_ms: int) -> None:
        """Begin; `newest_ms` is the latest time that earlier processes left."""
        self._began_ms = self._clock()
        self.ahead_ms = max(0, newest_ms - self._began_ms)

    def from_file(self, time_ms: int) -> int:
        """The time by this process's clock; never after its start."""
        return time_ms if time_ms <= self._began_ms else time_ms - self.ahead_ms

    def to_file(self, time_ms: int, then_ms: int = 0, now_ms: int | None = None) -> int:
        """The time to leave in a file for something that happened in this process. `now_ms`: the
        clock's, where it has just been asked.

        `then_ms` is what this was at that time, if known: it is better where the clocks have
        drawn nearer since, and nothing where the wall clock was ahead for a while.
        """
        wall_ms = self.wall()
        now_ms = self._clock() if now_ms is None else now_ms
        now_known_ms = time_ms + max(self.ahead_ms, wall_ms - now_ms)
        return max(now_known_ms, then_ms) if then_ms <= wall_ms else now_known_ms

    def as_seen(self, file_ms: int, wall_ms: int) -> int:
        """What the time of a file is to one who asks now, at `wall_ms`. One in the future counts
        from what files get at present, as in `from_file`."""
        if file_ms <= wall_ms:
            return file_ms
        return file_ms - max(0, self._clock() + self.ahead_ms - wall_ms)
