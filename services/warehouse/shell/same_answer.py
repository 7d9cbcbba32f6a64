"""Decides whether DuckDB answers a statement as Spark does. Pure; from DuckDB's own syntax tree.

Spark's SQL is the language of `kafka2011 sql`; DuckDB only answers sooner. So DuckDB gets a
statement when each piece of it is in a list here of what gives the same rows, types and column
names in both. All else raises Unsure, and Spark answers. What is left out differs somewhere:

    "x"                     a text in Spark, a column in DuckDB
    1/0, cast('x' as int)   an error, or another one
    round, lower, regexps   other rules for halves, for letters, for patterns
    text = 5                which side is converted
    count(*) + 1            the column's name, where none is given
    float = 0.1             32 bits are compared in DuckDB, 64 in Spark
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from kafka2011.runtime.config import suggestion
from kafka2011.services.warehouse.shell import decimals
from kafka2011.services.warehouse.shell.kinds import (
    BOOLEAN,
    DATE,
    DECIMAL,
    NUMBERS,
    ORDERED,
    OTHER,
    REAL,
    SINGLE,
    TEXT,
    TEXT_PARTS,
    TIME,
    WHOLE,
    Kinds,
    aggregate,
    check_decimals,
    has_order,
    scalar,
)
from kafka2011.services.warehouse.shell.syntax_tree import (
    Node,
    Unsure,
    only,
    pruned,
    text_constant,
    whole_constant,
)

_TEXTS = re.compile(r"'(?:[^']|'')*'")
# The last four are no SQL of Spark's.
_OTHER_MEANING = re.compile(
    r"--|/\*|[\\\"`]|\blateral\b|,\s*from\b|\b(?:isnull|notnull)\b(?!\s*\()|\bfetch\s|"
    r"\boffset\s+\w+\s+rows?\b|\bgroup\s+by\s*\(\s*\)",
    re.IGNORECASE,
)
_NUMBER_WITH_SUFFIX = re.compile(r"\b\d[\d.]*(?!e[+-]?\d)[a-z_]", re.IGNORECASE)
_BEGINNING = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d( (?!24)\d\d:\d\d:\d\d(\.\d{1,6})?)?")
_LONG_MAX = 2**63 - 1
# Written without brackets beside = these belong to its right side in DuckDB alone.
_TESTS = {"COMPARE_IN", "COMPARE_NOT_IN", "COMPARE_BETWEEN", "COMPARE_NOT_BETWEEN"}
_TESTS |= {"OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"}
_COMPARISONS = {
    "COMPARE_EQUAL",
    "COMPARE_NOTEQUAL",
    "COMPARE_LESSTHAN",
    "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_GREATERTHAN",
    "COMPARE_GREATERTHANOREQUALTO",
}
_JOINS = {"INNER", "LEFT", "RIGHT", "OUTER"}
_CONSTANT_KINDS = {"STRING": TEXT, "INTEGER": WHOLE, "NUMERIC": DECIMAL, "BOOLEAN": BOOLEAN}
# Names without a bracket that are no columns in Spark.
_SPARKS_OWN = re.compile(r"_|current_|session_|local|grouping|user$", re.IGNORECASE)


class Unknown(Exception):
    """No engine can answer: there is no such `table` or, if that is empty, no such column; there
    are `columns`."""

    def __init__(self, message: str, table: str = "", columns: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.table = table
        self.columns = columns


def check_text(statement: str) -> None:
    """Raise Unsure for anything but a query, and for signs that the two read differently."""
    if not _BEGINNING.match(statement):
        raise Unsure("no SELECT")
    if found := _OTHER_MEANING.search(statement):
        raise Unsure(found[0])
    if found := _NUMBER_WITH_SUFFIX.search(_TEXTS.sub("''", statement)):
        raise Unsure(found[0])


def column_names(tree: Node, tables: Mapping[str, Kinds]) -> list[str]:
    """The names that Spark gives to the columns of the result.

    `tree` is what DuckDB's json_serialize_sql returns, `tables` has the warehouse's by name in
    lower case. Raises Unsure unless both engines give the same answer.
    """
    if tree.get("error"):
        raise Unsure("not understood by DuckDB")
    statements = tree["statements"]
    if len(statements) != 1 or pruned(statements[0]).keys() != {"node"}:
        raise Unsure("more than one statement")
    return list(_columns_of_query(statements[0]["node"], tables))


def _columns_of_query(node: Node, outer: Mapping[str, Kinds]) -> Kinds:
    """The result's columns: Spark's name for each, and its kind."""
    if node["type"] != "SELECT_NODE":
        raise Unsure(node["type"])
    only(
        node, "select_list", "from_table", "where_clause", "group_expressions", "group_sets",
        "having", "modifiers", "cte_map", "aggregate_handling",
    )  # fmt: skip
    if node["aggregate_handling"] != "STANDARD_HANDLING" or len(node.get("group_sets") or []) > 1:
        raise Unsure("this GROUP BY")
    tables = dict(outer)
    for entry in (node.get("cte_map") or {}).get("map", []):
        value = only(entry["value"], "query_node", "materialized")
        if value.get("materialized") != "CTE_MATERIALIZE_DEFAULT":
            raise Unsure("MATERIALIZED")
        tables[entry["key"].lower()] = _columns_of_query(value["query_node"], tables)
    scope = _Scope(_relations(node["from_table"], tables))
    columns = scope.select_list(node["select_list"])
    for clause in (node.get("where_clause"), node.get("having")):
        if clause and scope.kind(clause) != BOOLEAN:
            raise Unsure("a condition that is no comparison")
    grouped = [scope.place(expression) for expression in node.get("group_expressions") or []]
    modifiers = node.get("modifiers") or []
    if any(modifier["type"] == "DISTINCT_MODIFIER" for modifier in modifiers):
        grouped += columns.values()
        places = [each["expression"] for one in modifiers for each in one.get("orders") or []]
        if any(
            whole_constant(place) is None and not _is_name_of(place, columns) for place in places
        ):
            raise Unsure("an order of DISTINCT rows by something that is not a column of theirs")
    if not {REAL, SINGLE}.isdisjoint(grouped):
        raise Unsure("groups of doubles")
    for modifier in modifiers:
        _check_modifier(modifier, scope)
    return columns


def _is_name_of(node: Node, columns: Kinds) -> bool:
    names: list[str] = node.get("column_names", [])
    return len(names) == 1 and _find(columns, names[0]) is not None


def _check_modifier(node: Node, scope: "_Scope") -> None:
    kind = node["type"]
    if kind == "ORDER_MODIFIER":
        for order in node["orders"]:
            scope.place(only(order, "null_order", "expression")["expression"])
    elif kind == "LIMIT_MODIFIER":
        only(node, "limit", "offset", "limit_type")
        counts = [count for count in (node.get("limit"), node.get("offset")) if count]
        if node["limit_type"] != "ROW_COUNT" or any(
            whole_constant(count) is None for count in counts
        ):
            raise Unsure("this LIMIT")
    elif kind != "DISTINCT_MODIFIER" or pruned(node):
        raise Unsure(kind)


def _relations(node: Node, tables: Mapping[str, Kinds]) -> list[tuple[str, Kinds]]:
    """The relations of a FROM, in order: the name by which columns are qualified, and columns."""
    kind = node["type"]
    if kind == "EMPTY":
        return []
    if kind == "BASE_TABLE":
        if node.get("schema_name"):
            raise Unsure("a table's name with a dot")
        name = only(node, "table_name")["table_name"]
        if name.lower() not in tables:
            raise Unknown(f"no table {name}", name)
        return [((node["alias"] or name).lower(), tables[name.lower()])]
    if kind == "SUBQUERY":
        inner = only(only(node, "subquery")["subquery"], "node")["node"]
        return [(node["alias"].lower(), _columns_of_query(inner, tables))]
    if kind == "JOIN":
        only(node, "left", "right", "condition", "join_type", "ref_type")
        found = [*_relations(node["left"], tables), *_relations(node["right"], tables)]
        if node["join_type"] not in _JOINS or node["ref_type"] not in ("REGULAR", "CROSS"):
            raise Unsure("this JOIN")
        if node.get("condition") and _Scope(found).kind(node["condition"]) != BOOLEAN:
            raise Unsure("this JOIN")
        return found
    raise Unsure(f"FROM {kind}")


def _same(kinds: Iterable[str]) -> str:
    found = set(kinds)
    if len(found) != 1:
        raise Unsure("kinds of values mixed: " + ", ".join(sorted(found)))
    return found.pop()


class _Scope:
    """The columns that the expressions of one SELECT can name."""

    def __init__(self, relations: list[tuple[str, Kinds]]) -> None:
        self._relations = relations
        self._kinds: list[str] = []  # of the select list
        self._aliases: Kinds = {}  # of the select list
        self._later: set[str] = set()  # all aliases, which Spark knows inside the list, too

    # --- what the result has ---------------------------------------------------------------------

    def select_list(self, items: list[Node]) -> Kinds:
        found: list[tuple[str, str]] = []
        self._later = {item["alias"].lower() for item in items}
        for item in items:
            if item["type"] == "STAR":
                found += self._star(item)
                continue
            kind, alias = self.kind(item), item["alias"]
            if kind in (OTHER, DECIMAL):
                raise Unsure(f"a column of a {kind} type")
            found.append((alias or _spark_name(item), kind))
            if alias and not self._is_column(item, alias):
                if any(_find(columns, alias) for _, columns in self._relations):
                    raise Unsure(f"{alias} is a column and an alias")
                self._aliases[alias] = kind
        if len({name.lower() for name, _ in found}) < len(found):
            raise Unsure("two columns of one name")
        self._kinds = [kind for _, kind in found]
        return dict(found)

    def _star(self, item: Node) -> list[tuple[str, str]]:
        only(item)
        if len(self._relations) != 1:
            raise Unsure("* of a JOIN")
        columns = list(self._relations[0][1].items())
        if any(kind == OTHER for _, kind in columns):
            raise Unsure(f"a column of a {OTHER} type")
        return columns

    def _is_column(self, item: Node, alias: str) -> bool:
        names: list[str] = item.get("column_names", [])
        return bool(names) and names[-1].lower() == alias.lower()

    def place(self, node: Node) -> str:
        """The kind of what ORDER BY or GROUP BY names: a position of the select list, an alias, or
        an expression."""
        names = node.get("column_names", [])
        position = whole_constant(node)
        if position is not None:
            kind = self._kinds[position - 1] if 0 < position <= len(self._kinds) else OTHER
        elif len(names) == 1 and (alias := _find(self._aliases, names[0])):
            kind = alias
        elif node["type"] == "VALUE_CONSTANT":
            raise Unsure("an order by a constant")
        else:
            kind = self.kind(node)
        if not has_order(kind):
            raise Unsure(f"an order of {kind} values")
        return kind

    # --- kinds of expressions --------------------------------------------------------------------

    def kind(self, node: Node) -> str:
        """The kind of an expression's values. Raises Unsure."""
        rules = {
            "COLUMN_REF": self._column,
            "CONSTANT": self._constant,
            "COMPARISON": self._comparison,
            "BETWEEN": self._between,
            "CONJUNCTION": self._conjunction,
            "OPERATOR": self._operator,
            "CAST": self._cast,
            "CASE": self._case,
            "FUNCTION": self._function,
        }
        if node["class"] not in rules:
            raise Unsure(node["class"])
        return rules[node["class"]](node)

    def _column(self, node: Node) -> str:
        names = only(node, "column_names")["column_names"]
        qualifier = names[0].lower() if len(names) == 2 else None
        found = [
            kind
            for name, columns in self._relations
            if qualifier in (None, name) and (kind := _find(columns, names[-1]))
        ]
        if not found and len(names) == 1 and names[0].lower() not in self._later:
            self._check_known(names[0])
        if len(found) != 1 or len(names) > 2:
            raise Unsure(f"the column {'.'.join(names)}")
        return found[0]

    def _check_known(self, name: str) -> None:
        if _SPARKS_OWN.match(name) or not self._relations:
            return
        known = [column for _, columns in self._relations for column in columns]
        of = ", ".join(relation for relation, _ in self._relations)
        raise Unknown(f"no column {name} in {of}{suggestion(name.lower(), known)}", columns=known)

    def _constant(self, node: Node) -> str:
        literal = only(node, "literal")["literal"]
        kind = _CONSTANT_KINDS.get(literal["kind"])
        if kind is None or (kind == WHOLE and abs(whole_constant(node) or 0) > _LONG_MAX):
            raise Unsure(literal.get("text") or "NULL")
        return kind

    def _compared(self, nodes: Iterable[Node]) -> str:
        """Check that these values compare alike in both engines."""
        nodes = list(nodes)
        kinds = [self.kind(node) for node in nodes]
        if any(map(decimals.shape, kinds)):
            check_decimals(nodes, kinds)
            return BOOLEAN
        if SINGLE in kinds and (others := set(kinds) - {SINGLE, REAL}):
            raise Unsure(f"a comparison of a float with {min(others)}")
        found = set()
        for kind in kinds:
            found.add(REAL if kind in {*NUMBERS, SINGLE, DECIMAL} else kind)
        texts = [text for node in nodes if (text := text_constant(node)) is not None]
        for kind, form in ((TIME, _TIME), (DATE, _DATE)):
            if found == {kind, TEXT} and len(texts) == len(nodes) - 1:
                if all(form.fullmatch(text) for text in texts):
                    return BOOLEAN
                raise Unsure(f"a {kind} that is not written YYYY-MM-DD hh:mm:ss")
        if found == {TIME, DATE}:  # the date's midnight in both
            return BOOLEAN
        if _same(found) not in ORDERED:
            raise Unsure("a comparison of " + found.pop())
        return BOOLEAN

    def _comparison(self, node: Node) -> str:
        if node["type"] not in _COMPARISONS:
            raise Unsure(node["type"])
        only(node, "left", "right")
        sides = [node["left"], node["right"]]
        if not _TESTS.isdisjoint(side["type"] for side in sides):
            raise Unsure("a test beside a comparison")
        return self._compared(sides)

    def _between(self, node: Node) -> str:
        only(node, "input", "lower", "upper")
        return self._compared([node["input"], node["lower"], node["upper"]])

    def _conjunction(self, node: Node) -> str:
        return self._booleans(only(node, "children")["children"])

    def _booleans(self, nodes: Iterable[Node]) -> str:
        if _same(map(self.kind, nodes)) != BOOLEAN:
            raise Unsure("a condition that is no comparison")
        return BOOLEAN

    def _operator(self, node: Node) -> str:
        kind, children = node["type"], only(node, "children")["children"]
        if kind == "OPERATOR_NOT":
            return self._booleans(children)
        if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
            self.kind(children[0])
            return BOOLEAN
        if kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
            return self._compared(children)
        if kind == "OPERATOR_COALESCE":
            return _same(map(self.kind, children))
        raise Unsure(kind)

    def _cast(self, node: Node) -> str:
        to = only(node, "child", "type_expr")["type_expr"].get("type_name", "").lower()
        text = text_constant(node["child"])
        if text is not None:
            for name, kind, form in (("timestamp", TIME, _TIME), ("date", DATE, _DATE)):
                if to == name and form.fullmatch(text):
                    return kind
        elif to == "date" and self.kind(node["child"]) == TIME:
            return DATE
        raise Unsure(f"cast as {to}")

    def _case(self, node: Node) -> str:
        only(node, "case_checks", "else_expr")
        self._booleans(check["when_expr"] for check in node["case_checks"])
        results = [check["then_expr"] for check in node["case_checks"]]
        otherwise = node["else_expr"]
        if otherwise.get("literal", {}).get("kind") != "NULL_LITERAL":
            results.append(otherwise)
        return _same(map(self.kind, results))

    def _function(self, node: Node) -> str:
        name = node["function_name"].lower()
        only(node, "function_name", "arguments", "distinct", "filter", "order_bys")
        if len(pruned(node.get("order_bys") or {})) or any(
            pruned(argument).keys() != {"expression"} for argument in node.get("arguments") or []
        ):
            raise Unsure(name)
        arguments = [argument["expression"] for argument in node.get("arguments") or []]
        if node.get("filter"):
            self._booleans([node["filter"]])
        if name == "count_star":
            return WHOLE
        kinds = list(map(self.kind, arguments))
        found = aggregate(name, kinds)
        if found is None and not node.get("distinct") and not node.get("filter"):
            found = scalar(name, arguments, kinds)
        if found is None:
            is_of_decimals = len(kinds) == 1 and decimals.shape(kinds[0])
            raise Unsure(f"{name} of {kinds[0]}" if is_of_decimals else name)
        return found


def _find(columns: Kinds, name: str) -> str | None:
    """The kind of a column, in any case of letters."""
    return next((kind for column, kind in columns.items() if column.lower() == name.lower()), None)


def _spark_name(node: Node) -> str:
    """Spark's name of a column that has no alias. Raises Unsure for most expressions."""
    if node["class"] == "COLUMN_REF":
        return str(node["column_names"][-1])
    if (whole := whole_constant(node)) is not None:
        return str(whole)
    if (text := text_constant(node)) is not None:
        return text
    if node["class"] != "FUNCTION" or node.get("is_operator") or node.get("filter"):
        raise Unsure("a column without a name")
    name = node["function_name"].lower()
    if name == "count_star":
        return "count(1)"
    if name in TEXT_PARTS and len(node["arguments"]) < 3:
        raise Unsure("a column without a name")  # Spark's has a length that was not written
    inside = ", ".join(_spark_name(argument["expression"]) for argument in node["arguments"])
    return f"{name}({'DISTINCT ' if node.get('distinct') else ''}{inside})"
