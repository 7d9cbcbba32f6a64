"""Whether a reader's schema can read a writer's data, with the path of each incompatibility.

Avro's resolution rules: promotions, defaults, aliases of the reader, unions, enums with defaults,
fixed, recursive types. The pairs of types that meet form a graph; a pair is incompatible when its
own rule fails, when one of the pairs it needs is, or when all pairs of a union are. Failures are
carried backwards through the graph until nothing changes (the greatest fixed point), so recursion
is no special case, and neither deep nor wide schemas cost more than their number of pairs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafka2011.services.schema_registry.avro import Type
from kafka2011.services.schema_registry.errors import SchemaInvalid

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
REASONS_MAX = 50  # of one version
PLACE_CHARACTERS_MAX = 500

PROMOTIONS = {
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
    # the pair that led here first, and the step from it: joined only for a pair that failed
    parent: "_Pair | None" = None
    step: str = ""
    name: str = ""
    errors: list[Incompatibility] = field(default_factory=list)
    needs: list["_Pair"] = field(default_factory=list)
    needed_by: list["_Pair"] = field(default_factory=list)
    # of a reader's union: the pairs of which one must be good, and how many still may be
    choices: list["_Pair"] = field(default_factory=list)
    choice_of: list["_Pair"] = field(default_factory=list)
    choices_left: int = 0
    is_bad: bool = False

    def place(self) -> tuple[str, str]:
        """JSON pointer and fields from the root."""
        steps: list[str] = []
        names: list[str] = []
        at: _Pair | None = self
        while at is not None:
            steps.append(at.step)
            if at.name:
                names.append(at.name)
            at = at.parent
        return "".join(reversed(steps)), ".".join(reversed(names))


def can_read(reader: Type, writer: Type) -> list[Incompatibility]:
    """Why `reader` cannot read everything that `writer` writes; empty: it can."""
    graph = _Graph()
    root = graph.pair(reader, writer)
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
        self._branches: dict[int, dict[str, list[int]]] = {}

    def pair(
        self,
        reader: Type,
        writer: Type,
        parent: _Pair | None = None,
        step: str = "",
        name: str = "",
    ) -> _Pair:
        key = (id(reader), id(writer))
        found = self._pairs.get(key)
        if found is None:
            if len(self._pairs) >= PAIRS_MAX:
                raise SchemaInvalid("too complex to be compared")
            found = self._pairs[key] = _Pair(reader, writer, parent, step, name)
            self._open.append(found)
        return found

    def branches(self, union: Type, writer: Type) -> list[int]:
        """Numbers of the branches that may match: of the same kind and name, or by promotion."""
        index = self._branches.get(id(union))
        if index is None:
            index = self._branches[id(union)] = {}
            for number, branch in enumerate(union.branches):
                for key in (f"{branch.kind} {branch.short_name}", *_alias_keys(branch)):
                    index.setdefault(key, []).append(number)
        keys = [f"{writer.kind} {writer.short_name}", f"{writer.kind} ={writer.name}"]
        keys += [f"{kind} " for kind in PROMOTIONS.get(writer.kind, ())]
        return sorted({number for key in keys for number in index.get(key, ())})

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
            path, member = pair.place() if pair.errors else ("", "")
            for error in pair.errors:
                found.append(
                    Incompatibility(
                        error.kind,
                        _short(path + error.path) or "/",
                        _short(".".join(part for part in (member, error.member) if part)),
                        error.detail,
                    )
                )
            if len(found) >= REASONS_MAX:
                break
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
        self._pair.errors.append(Incompatibility(kind, path, name, detail))

    def _need(self, reader: Type, writer: Type, path: str = "", name: str = "") -> None:
        pair = self._pair
        other = self._graph.pair(reader, writer, pair, path, name)
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
            if reader.kind not in PROMOTIONS.get(writer.kind, ()):
                self._fail(
                    "TYPE_MISMATCH",
                    f"the READER schema has {_text_of(reader)} where the WRITER one has "
                    f"{_text_of(writer)}",
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
        for number in self._graph.branches(reader, writer):
            other = self._graph.pair(reader.branches[number], writer, pair, f"/{number}")
            pair.choices.append(other)
            other.choice_of.append(pair)
        pair.choices_left = len(pair.choices)
        if not pair.choices:
            self._fail(
                "MISSING_UNION_BRANCH",
                f"the READER schema's union has no branch for {_text_of(writer)} of the WRITER one",
            )

    def _named(self, reader: Type, writer: Type) -> None:
        if not _same_name(reader, writer):
            self._fail(
                "NAME_MISMATCH",
                f"the READER schema's {_text_of(reader)} has another name than the WRITER one's "
                f"{_text_of(writer)}",
                "/name",
            )
            return
        if reader.kind == "fixed" and reader.size != writer.size:
            self._fail(
                "FIXED_SIZE_MISMATCH",
                f"the READER schema's {_text_of(reader)} has {reader.size} bytes, "
                f"the WRITER one's {writer.size}",
                "/size",
            )
        if reader.kind == "enum" and reader.enum_default is None:
            known = set(reader.symbols)
            missing = [symbol for symbol in writer.symbols if symbol not in known]
            if missing:
                self._fail(
                    "MISSING_ENUM_SYMBOLS",
                    f"the READER schema's {_text_of(reader)} lacks {', '.join(missing[:20])} "
                    "of the WRITER one and has no default",
                    "/symbols",
                )
        if reader.kind == "record":
            written = {part.name: part for part in writer.fields}
            # A writer's field is read into one field: the one of its name, else the last that has
            # it as an alias, as in Avro for Java and in fastavro. For another it is not there.
            taken_by = {alias: part.name for part in reader.fields for alias in part.aliases}
            taken_by.update((part.name, part.name) for part in reader.fields)
            for number, part in enumerate(reader.fields):
                named = dict.fromkeys((part.name, *part.aliases))
                names = [n for n in named if n in written and taken_by[n] == part.name]
                other = written[names[0]] if names else None
                if len(names) > 1:
                    self._fail(
                        "NAME_MISMATCH",
                        f"the field is {' and '.join(names[:20])} of the WRITER schema, by its "
                        "name and aliases in the READER one: it can be only one of them",
                        f"/fields/{number}/aliases",
                        part.name,
                    )
                elif other is not None:
                    self._need(part.type, other.type, f"/fields/{number}/type", part.name)
                elif not part.has_default:
                    self._fail(
                        "READER_FIELD_MISSING_DEFAULT_VALUE",
                        "the field has no default value in the READER schema and is missing in "
                        "the WRITER one",
                        f"/fields/{number}",
                        part.name,
                    )


def _alias_keys(branch: Type) -> list[str]:
    return [f"{branch.kind} ={alias}" for alias in branch.aliases]


def _short(text: str) -> str:
    return text if len(text) <= PLACE_CHARACTERS_MAX else f"...{text[-PLACE_CHARACTERS_MAX:]}"


def _same_name(reader: Type, writer: Type) -> bool:
    """Names are compared without their namespaces, aliases with them, as Avro's rules say."""
    return reader.short_name == writer.short_name or writer.name in reader.aliases


def _text_of(type_: Type) -> str:
    return f"{type_.kind} {type_.name}" if type_.name else type_.kind
