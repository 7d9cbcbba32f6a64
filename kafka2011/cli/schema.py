"""`kafka2011 schema`: a topic's Avro schemas in the registry: register, list, show, check, diff.

Statuses: 0 done, or compatible; 1 not compatible, unknown, refused, or the registry is away; 2 the
command or the file was wrong.
"""

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.parse import quote

import typer

from kafka2011.cli.connections import fail_without_one, found_registry
from kafka2011.cli.extras import missing
from kafka2011.cli.options import AsJson
from kafka2011.cli.output import complain, fail, print_json, print_lines, print_table
from kafka2011.events.errors import UnknownSchema
from kafka2011.events.forms import parse_forms
from kafka2011.events.registry_client import RegistryClient, RegistryError, RegistryRefused
from kafka2011.events.topic_codec import (
    TopicCodec,
    WriterSchema,
    id_prefix,
    subject_of,
    writer_of_text,
)
from kafka2011.runtime.config import suggestion
from kafka2011.runtime.program import program
from kafka2011.services.schema_registry.avro import ParsedSchema, parse
from kafka2011.services.schema_registry.changes import changes, outline, words
from kafka2011.services.schema_registry.errors import SchemaInvalid

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Register, list, show, check and compare the Avro schemas of a topic. Status 1: not "
    "compatible, unknown, or the registry is away; 2: the file is no Avro schema. For example: "
    "kafka2011 schema register orders order.avsc",
)

TIMEOUT_S = 10.0
INCOMPATIBLE = 409

Topic = Annotated[str, typer.Argument(help="topic; its subject in the registry is TOPIC-value")]
File = Annotated[Path, typer.Argument(help="the schema, a .avsc file", metavar="FILE")]
Registry = Annotated[
    str,
    typer.Option(
        "--registry",
        help="the registry's URL, http://host:port "
        "(default: of the deployment that runs in this directory)",
    ),
]
Json = dict[str, Any]


@app.command()
def register(topic: Topic, file: File, *, registry: Registry = "", as_json: AsJson = False) -> None:
    """Register a file as the newest version of a topic's schema; the same file again changes
    nothing.

    For example: kafka2011 schema register orders order.avsc
    """
    text = _schema_text(file)
    client, subject = _client(registry), subject_of(topic)
    try:
        body, one = {"schema": text}, f"/subjects/{quote(subject, safe='')}"
        _object(client, "POST", _path(subject), {"id": int}, body)
        found = _object(client, "POST", one, {"subject": str, "version": int, "id": int}, body)
    except RegistryRefused as error:
        if error.status == INCOMPATIBLE:
            fail(_refusal(file, subject, reasons(str(error))))
        fail(str(error))
    except RegistryError as error:
        _failed(error)
    if as_json:
        print_json({name: found[name] for name in ("subject", "version", "id")})
    else:
        place = "" if registry else f", at {client.url}"  # which of several may not be plain
        print_lines([f"{subject} version {found['version']}, id {found['id']}{place}"])
    _mention_columns(client, topic, text, below=found["version"])


@app.command("list")
def list_subjects(registry: Registry = "", as_json: AsJson = False) -> None:
    """List the subjects: newest version, its id, the compatibility that a new version must have.

    For example: kafka2011 schema list
    """
    client = _client(registry)
    try:
        rows = [_row(client, subject) for subject in sorted(_list(client, "/subjects", str))]
        if not rows:  # anything may answer an empty list
            _object(client, "GET", "/config", {"compatibilityLevel": str})
    except RegistryError as error:
        _failed(error)
    if as_json:
        print_json(rows)
    else:
        titles = ("subject", "version", "id", "compatibility")
        cells = [tuple(row[title] for title in titles) for row in rows]
        print_table(titles, cells, numbers=("version", "id"))


def _row(client: RegistryClient, subject: str) -> Json:
    newest = _object(client, "GET", _path(subject, "latest"), {"version": int, "id": int})
    config = f"/config/{quote(subject, safe='')}?defaultToGlobal=true"
    level = _object(client, "GET", config, {"compatibilityLevel": str})
    return {
        "subject": subject,
        "version": newest["version"],
        "id": newest["id"],
        "compatibility": level["compatibilityLevel"],
    }


@app.command()
def show(
    topic: Topic,
    *,
    version: Annotated[int, typer.Option("--version", min=0, help="0: the newest")] = 0,
    registry: Registry = "",
    as_json: AsJson = False,
) -> None:
    """Show the fields of a version; with --json the schema itself.

    For example: kafka2011 schema show orders --version 1
    """
    client, subject = _client(registry), subject_of(topic)
    numbers = _versions(client, subject)
    found = _version(client, subject, version or numbers[-1], numbers)
    if as_json:
        try:
            shown = json.loads(found["schema"])
        except ValueError as error:
            fail(f"version {found['version']} cannot be read: not JSON: {error}")
        print_json({**found, "schema": shown, "versions": numbers})
        return
    root = _parsed(client, found).root
    listed = ", ".join(map(str, numbers))
    print_lines([f"{subject} version {found['version']} (of {listed}), id {found['id']}"])
    if root.kind == "record":
        print_table(("field", "type", "default"), outline(root))
    else:
        print_lines([f"{words(root)}: no record, so its events become no rows"])


@app.command()
def check(topic: Topic, file: File, *, registry: Registry = "", as_json: AsJson = False) -> None:
    """Check whether a file may become the next version; registers nothing. Status 1: it may not.

    For example: kafka2011 schema check orders order.avsc
    """
    text = _schema_text(file)
    client, subject = _client(registry), subject_of(topic)
    path = f"/compatibility{_path(subject)}?verbose=true"
    try:
        answer = _object(client, "POST", path, {"is_compatible": bool}, {"schema": text})
        is_first = not _has_versions(client, subject)
    except RegistryError as error:
        _failed(error)
    is_compatible = answer["is_compatible"]
    found = [] if is_compatible else reasons(", ".join(map(str, answer.get("messages") or ())))
    if as_json:
        print_json({"subject": subject, "is_compatible": is_compatible, "reasons": found})
    elif is_compatible:
        known = f"be the first version of {subject}" if is_first else f"follow those of {subject}"
        print_lines([f"{file} may {known}"])
    else:
        complain(_refusal(file, subject, found))
    if is_compatible:
        _mention_columns(client, topic, text)
    raise SystemExit(0 if is_compatible else 1)


def _mention_columns(client: RegistryClient, topic: str, text: str, below: int = 0) -> None:
    """Write to standard error which fields get columns of another name, and why the load will not
    take this version after the others (`below`: only those below that number). Nothing without
    Arrow, or where the schema is no record."""
    if missing("pyarrow"):
        return
    from kafka2011.services.warehouse.load.column_changes import (
        refusal,
        renamed,
        table_columns,
    )

    try:
        new = writer_of_text(text)
    except UnknownSchema:
        return
    for line in renamed(new):
        complain(line)
    with contextlib.suppress(RegistryError):  # no version yet, or the main work is done
        numbers = sorted(_list(client, _path(subject_of(topic)), int))
        earlier = [number for number in numbers if not below or number < below]
        why = refusal(table_columns(_writers(client, topic, earlier)), new)
        if why:
            complain(why)


def _refusal(file: Path, subject: str, found: list[str]) -> str:
    return (
        f"{file} cannot follow the versions of {subject}: {'; '.join(found)}. Give each added "
        "field a default, only widen types, or take a new topic"
    )


@app.command()
def diff(
    topic: Topic,
    old: Annotated[int, typer.Argument(min=0, help="0: the one before NEW")] = 0,
    new: Annotated[int, typer.Argument(min=0, help="0: the newest")] = 0,
    *,
    registry: Registry = "",
    as_json: AsJson = False,
) -> None:
    """Say what changes from one version to another, and what becomes of the table's columns.

    For example: kafka2011 schema diff orders 1 2
    """
    client, subject = _client(registry), subject_of(topic)
    numbers = _versions(client, subject)
    new = new or numbers[-1]
    earlier = [number for number in numbers if number < new]
    if not old and not earlier:
        fail(f"{subject} has no version before {new}: there is nothing to compare")
    old = old or earlier[-1]
    before, after = (_version(client, subject, number, numbers) for number in (old, new))
    found = changes(_parsed(client, before), _parsed(client, after))
    columns = _column_changes(client, topic, [n for n in numbers if n <= old], new)
    if as_json:
        print_json({"subject": subject, "old": old, "new": new, "changes": found, **columns})
        return
    print_lines(
        [f"{subject}, version {old} to {new}:", *(f"  {line}" for line in found or ["no change"])]
    )
    for title, lines in columns.items():
        print_lines([f"{title}:", *(f"  {line}" for line in lines or ["no change"])])


def _column_changes(
    client: RegistryClient, topic: str, earlier: list[int], new_version: int
) -> dict[str, list[str]]:
    """The lines by title, `columns`; empty, after a line on standard error, without Arrow."""
    hint = missing("pyarrow")
    if hint:
        complain(f"what becomes of the table's columns is not shown: {hint}")
        return {}
    from kafka2011.services.warehouse.load.column_changes import column_changes, table_columns

    try:
        new = _writers(client, topic, [new_version])
        known = _writers(client, topic, earlier)
    except RegistryError as error:
        _failed(error)
    if not new:
        return {"columns": ["no record: its messages go to quarantine"]}
    return {"columns": column_changes(table_columns(known), new[0])}


def _writers(client: RegistryClient, topic: str, versions: list[int]) -> list[WriterSchema]:
    """The schemas of the versions that are records, the only ones that the load takes. Raises
    RegistryError."""
    codec = TopicCodec(parse_forms("*:id"), client)
    found = []
    for number in versions:
        schema_id = _object(client, "GET", _path(subject_of(topic), number), {"id": int})["id"]
        with contextlib.suppress(UnknownSchema):
            found.append(codec.writer_schema(topic, id_prefix(schema_id)))
    return found


# --- the registry's answers ----------------------------------------------------------------------

_DESCRIPTION = re.compile(r"description:'At (.*?)'\}(?=, |\]|\Z)", re.DOTALL)
_FIELD = re.compile(r"'(?P<member>[^']*)' at path '[^']*': (?P<why>.*)", re.DOTALL)


def reasons(text: str) -> list[str]:
    """The reasons of a refusal, the field first; the whole text where it has another form."""
    found = []
    for description in _DESCRIPTION.findall(text):
        named = _FIELD.match(description)
        found.append(f"field {named['member']}: {named['why']}" if named else description)
    return list(dict.fromkeys(found)) or [text]


def _client(url: str) -> RegistryClient:
    """A client of the registry. Exits with status 2 without a usable address."""
    url = url or found_registry()
    if not url:
        fail_without_one("--registry", lambda one: one.registry, "http://HOST:PORT")
    try:
        return RegistryClient(url, timeout_s=TIMEOUT_S)
    except ValueError as error:
        fail(f"--registry {error}", 2)


def _schema_text(file: Path) -> str:
    """The schema in a file. Exits with status 2 for a file that is no Avro schema."""
    try:
        text = file.read_text(encoding="utf-8")
        if not text.strip():
            fail(f"{file} is empty: it must hold an Avro schema, in JSON", 2)
        parse(text)
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", 2)
    except UnicodeDecodeError as error:
        fail(f"{file} is not UTF-8: {error.reason} at byte {error.start}", 2)
    except SchemaInvalid as error:
        fail(f"{file} is no Avro schema: {error.message.removeprefix('Invalid schema: ')}", 2)
    return text


def _object(
    client: RegistryClient,
    method: str,
    path: str,
    fields: Mapping[str, type],
    body: Json | None = None,
) -> Json:
    """The response's object, which has `fields` of these types. Raises RegistryError."""
    found = client.request(method, path, body)
    if isinstance(found, dict) and all(_is(found.get(name), fields[name]) for name in fields):
        return found
    raise _no_registry(client, method, path)


def _list(client: RegistryClient, path: str, kind: type) -> list[Any]:
    """The response's list, of names or of versions. Raises RegistryError."""
    found = client.request("GET", path)
    if isinstance(found, list) and all(one and _is(one, kind) for one in found):
        return found
    raise _no_registry(client, "GET", path)


def _is(value: object, kind: type) -> bool:
    """Whether the value has this type; a number must be in the range of ids."""
    return type(value) is kind and (not isinstance(value, int) or 0 <= value < 2**32)


def _no_registry(client: RegistryClient, method: str, path: str) -> RegistryRefused:
    text = f"{client.url} is no schema registry: it gives no usable answer to {method} {path}"
    return RegistryRefused(text, 200, 0)


def _path(subject: str, version: int | str = "") -> str:
    path = f"/subjects/{quote(subject, safe='')}/versions"
    return f"{path}/{version}" if version else path


def _has_versions(client: RegistryClient, subject: str) -> bool:
    """Whether the subject has versions. Raises RegistryError."""
    try:
        return bool(_list(client, _path(subject), int))
    except RegistryRefused as error:
        if error.status != 404:
            raise
        return False


def _versions(client: RegistryClient, subject: str) -> list[int]:
    try:
        found = _list(client, _path(subject), int)
        if not found:
            raise _no_registry(client, "GET", _path(subject))
        return sorted(found)
    except RegistryRefused as error:
        if error.status != 404:
            fail(str(error))
        try:
            guess = suggestion(subject, _list(client, "/subjects", str))
        except RegistryError as failure:
            _failed(failure)
        fail(f"no subject {subject} in {client.url}{guess} ({program()} schema list shows them)")
    except RegistryError as error:
        _failed(error)


def _version(client: RegistryClient, subject: str, number: int, numbers: list[int]) -> Json:
    if number not in numbers:
        fail(f"{subject} has no version {number}: there are {', '.join(map(str, numbers))}")
    try:
        expected = {"version": int, "id": int, "schema": str}
        return _object(client, "GET", _path(subject, number), expected)
    except RegistryError as error:
        _failed(error)


def _parsed(client: RegistryClient, version: Json) -> ParsedSchema:
    try:
        known = client.schema(version["id"])
        return parse(known.text, known.referenced)
    except RegistryError as error:
        _failed(error)
    except SchemaInvalid as error:
        fail(f"version {version['version']} cannot be read: {error.message}")


def _failed(error: RegistryError) -> NoReturn:
    hint = "; start it, or give --registry" if error.retriable else ""
    fail(f"{error}{hint}")
