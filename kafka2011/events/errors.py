"""What can be wrong with the bytes of an event. All are the sender's fault: park the message."""


class EventError(ValueError):
    """The payload is not an event that can be read; reading it again will not help."""


class HeaderUnreadable(EventError):
    """The payload does not start with form byte, fingerprint and a whole header."""


class UnknownSchema(EventError):
    """The payload names a schema that is not shipped in `kafka2011/events/schemas`."""


class EventCorrupt(EventError):
    """The body does not follow the schema that the payload names."""
