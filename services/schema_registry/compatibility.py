"""Can a reader's schema read what a writer's schema wrote? With the path of what it cannot.

Avro's resolution rules: promotions, defaults, aliases of the reader, unions, enums with defaults,
fixed, recursive types. The pairs of types that meet form a graph; a pair is incompatible when its
own rule fails, when one of the pairs it needs is, or when all pairs of a union are. Failures are
carried backwards through the graph until nothing changes (the greatest fixed point), so recursion
is no special case, and neither deep nor wide schemas cost more than their number of pairs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.schema_registry.avro import Type
from services.schema_registry.errors import SchemaInvalid

LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
PAIRS_MAX = 200_000

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


@dataclass(frozen=True)
class Incompatibility:
    """One reason. `path` is a JSON pointer into the reader's schema; `member` the fields to it."""

    kind: str
    path: str
    member: str
    detail: str

    def message(self, reader: str, writer: str) -> str:
        """Confluent's form; `reader` and `writer` are "new" and "old", or the other way round."""
        detail = self.detail.replace("READER", reader).replace("WRITER", writer)
        where = f"'{self.member}' at path '{self.path}'" if self.member else f"path '{self.path}'"
        return f"{{errorType:'{self.kind}', description:'At {where}: {detail}'}}"


@dataclass(eq=False, slots=True)
class _Pair:
    reader: Type
    writer: Type
    path: str
    member: str
    errors: list[Incompatibility] = field(default_factory=list)
    needs: list["_Pair"] = field(default_factory=list)
    needed_by: list["_Pair"] = field(default_factory=list)
    # a reader's union: one of the choices must do; how many still may
    choices: list["_Pair"] = field(default_factory=list)
    choice_of: list["_Pair"] = field(default_factory=list)
    choices_left: int = 0
    is_bad: bool = False


def can_read(reader: Type, writer: Type) -> list[Incompatibility]:
    """Why `reader` cannot read everything that `writer` writes; empty: it can."""
    graph = _Graph()
    root = graph.pair(reader, writer, "", "")
    graph.explore()
    graph.spread()
    return graph.reasons(root)


def check(level: str, new: Type, old: Iterable[tuple[int, Type]]) -> list[str]:
    """Messages of what `level` forbids about `new`; `old` are (version, type), newest first.

    Empty: allowed. Levels that are not transitive look at the newest version only.
    """
    messages: list[str] = []
    for version, other in old:
        found: list[str] = []
        if level.startswith(("BACKWARD", "FULL")):
            found += [reason.message("new", "old") for reason in can_read(new, other)]
        if level.startswith(("FORWARD", "FULL")):
            found += [reason.message("old", "new") for reason in can_read(other, new)]
        if found:
            messages += [*found, f"{{oldSchemaVersion: {version}}}"]
        if not level.endswith("_TRANSITIVE"):
            break
    return [*messages, f"{{compatibility: '{level}'}}"] if messages else []


class _Graph:
    def __init__(self) -> None:
        self._pairs: dict[tuple[object, object], _Pair] = {}
        self._open: list[_Pair] = []

    def pair(self, reader: Type, writer: Type, path: str, name: str) -> _Pair:
        key = (id(reader), id(writer))
        found = self._pairs.get(key)
        if found is None:
            if len(self._pairs) >= PAIRS_MAX:
                raise SchemaInvalid("too complex to be compared")
            found = self._pairs[key] = _Pair(reader, writer, path, name)
            self._open.append(found)
        return found

    def explore(self) -> None:
        while self._open:
            _Rules(self, self._open.pop()).apply()

    def spread(self) -> None:
        bad = []
        for pair in self._pairs.values():
            if pair.errors:
                pair.is_bad = True
                bad.append(pair)
        while bad:
            failed = bad.pop()
            for other in failed.needed_by:
                if not other.is_bad:
                    other.is_bad = True
                    bad.append(other)
            for union in failed.choice_of:
                union.choices_left -= 1
                if union.choices_left == 0 and not union.is_bad:
                    union.is_bad = True
                    bad.append(union)

    def reasons(self, root: _Pair) -> list[Incompatibility]:
        found: list[Incompatibility] = []
        seen: set[int] = set()
        waiting = [root]
        while waiting:
            pair = waiting.pop()
            if not pair.is_bad or id(pair) in seen:
                continue
            seen.add(id(pair))
            found += pair.errors
            waiting += reversed(pair.needs)
            if pair.choices and pair.choices_left == 0:
                waiting += reversed(pair.choices)  # what the nearest branch lacks
        return found


class _Rules:
    """One pair's own rule, and the pairs that it depends on."""

    def __init__(self, graph: _Graph, pair: _Pair) -> None:
        self._graph = graph
        self._pair = pair

    def _fail(self, kind: str, detail: str, path: str = "", name: str = "") -> None:
        pair = self._pair
        at = f"{pair.path}{path}" or "/"
        named = ".".join(part for part in (pair.member, name) if part)
        pair.errors.append(Incompatibility(kind, at, named, detail))

    def _need(self, reader: Type, writer: Type, path: str = "", name: str = "") -> None:
        pair = self._pair
        named = ".".join(part for part in (pair.member, name) if part)
        other = self._graph.pair(reader, writer, pair.path + path, named)
        pair.needs.append(other)
        other.needed_by.append(pair)

    def apply(self) -> None:
        reader, writer = self._pair.reader, self._pair.writer
        if writer.kind == "union":
            for branch in writer.branches:
                self._need(reader, branch)
        elif reader.kind == "union":
            self._choose(reader, writer)
        elif reader.kind != writer.kind:
            if reader.kind not in _PROMOTIONS.get(writer.kind, ()):
                self._fail(
                    "TYPE_MISMATCH",
                    f"the READER schema has {_told(reader)} where the WRITER one has "
                    f"{_told(writer)}",
                )
        elif reader.kind in ("array", "map"):
            assert reader.items is not None
            assert writer.items is not None
            self._need(
                reader.items, writer.items, "/items" if reader.kind == "array" else "/values"
            )
        elif reader.name:
            self._named(reader, writer)

    def _choose(self, reader: Type, writer: Type) -> None:
        pair = self._pair
        for number, branch in enumerate(reader.branches):
            if _may_match(branch, writer):
                other = self._graph.pair(branch, writer, f"{pair.path}/{number}", pair.member)
                pair.choices.append(other)
                other.choice_of.append(pair)
        pair.choices_left = len(pair.choices)
        if not pair.choices:
            self._fail(
                "MISSING_UNION_BRANCH",
                f"the READER schema's union has no branch for {_told(writer)} of the WRITER one",
            )

    def _named(self, reader: Type, writer: Type) -> None:
        if not _same_name(reader, writer):
            self._fail(
                "NAME_MISMATCH",
                f"the READER schema's {_told(reader)} has another name than the WRITER one's "
                f"{_told(writer)}",
                "/name",
            )
            return
        if reader.kind == "fixed" and reader.size != writer.size:
            self._fail(
                "FIXED_SIZE_MISMATCH",
                f"the READER schema's {_told(reader)} has {reader.size} bytes, "
                f"the WRITER one's {writer.size}",
                "/size",
            )
        if reader.kind == "enum" and reader.enum_default is None:
            missing = [symbol for symbol in writer.symbols if symbol not in set(reader.symbols)]
            if missing:
                self._fail(
                    "MISSING_ENUM_SYMBOLS",
                    f"the READER schema's {_told(reader)} lacks {', '.join(missing[:20])} "
                    "of the WRITER one and has no default",
                    "/symbols",
                )
        if reader.kind == "record":
            written = {part.name: part for part in writer.fields}
            for number, part in enumerate(reader.fields):
                names = (part.name, *part.aliases)
                other = next((written[name] for name in names if name in written), None)
                if other is not None:
                    self._need(part.type, other.type, f"/fields/{number}/type", part.name)
                elif not part.has_default:
                    self._fail(
                        "READER_FIELD_MISSING_DEFAULT_VALUE",
                        "the field has no default value in the READER schema and is missing in "
                        "the WRITER one",
                        f"/fields/{number}",
                        part.name,
                    )


def _may_match(reader: Type, writer: Type) -> bool:
    """A branch of a union that is worth a look: of the same kind and name, or by promotion."""
    if reader.kind != writer.kind:
        return reader.kind in _PROMOTIONS.get(writer.kind, ())
    return not reader.name or _same_name(reader, writer)


def _same_name(reader: Type, writer: Type) -> bool:
    """Names are compared without their namespaces, aliases with them, as Avro's rules say."""
    return reader.short_name == writer.short_name or writer.name in reader.aliases


def _told(type_: Type) -> str:
    return f"{type_.kind} {type_.name}" if type_.name else type_.kind
