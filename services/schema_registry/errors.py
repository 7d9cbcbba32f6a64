"""The registry's refusals: HTTP status, Confluent's error code, one sentence."""


class RequestRejected(Exception):
    """A refusal. `status` is the HTTP status, `code` the `error_code` of the answer's JSON."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class SchemaInvalid(RequestRejected):
    """The text is not an Avro schema within the limits (42201)."""

    def __init__(self, message: str) -> None:
        super().__init__(422, 42201, f"Invalid schema: {message}")


def subject_not_found(subject: str) -> RequestRejected:
    return RequestRejected(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RequestRejected:
    return RequestRejected(404, 40402, f"Version {version} not found.")


def schema_not_found(what: str = "Schema") -> RequestRejected:
    return RequestRejected(404, 40403, f"{what} not found")


def version_invalid(version: str) -> RequestRejected:
    return RequestRejected(
        422,
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are "
        'between [1, 2^31-1] and the string "latest"',
    )


def operation_not_permitted(message: str) -> RequestRejected:
    return RequestRejected(422, 42205, message)


def not_understood(message: str) -> RequestRejected:
    return RequestRejected(422, 422, message)
