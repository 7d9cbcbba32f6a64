"""Errors in the bytes of an event. Each is the sender's fault: park the message."""


class EventError(ValueError):
    """The payload is not a readable event; retrying fails again."""


class HeaderUnreadable(EventError):
    """The payload does not start with form byte, fingerprint and a whole header."""


class UnknownSchema(EventError):
    """The payload names a schema that is neither shipped nor registered."""


class EventCorrupt(EventError):
    """The body does not match the schema that the payload names."""
