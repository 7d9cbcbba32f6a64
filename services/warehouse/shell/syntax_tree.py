"""Reads DuckDB's syntax tree of a statement, as its json_serialize_sql gives it. Pure."""

from typing import Any

Node = dict[str, Any]


class Unsure(Exception):
    """DuckDB may answer differently from Spark; the text names the cause."""


def pruned(node: Node) -> Node:
    """What a node says, without positions, defaults and duplicates."""
    return {
        key: value
        for key, value in node.items()
        if value not in (None, "", [], {}, False)
        and not key.startswith(("query_location", "nearest_"))
        and key not in ("qualified_name", "class", "type", "alias", "is_operator", "is_implicit")
    }


def only(node: Node, *keys: str) -> Node:
    """The node; raises Unsure if it says anything besides `keys`."""
    if extra := pruned(node).keys() - set(keys):
        raise Unsure(f"{node.get('function_name') or node['type']} with {min(extra)}")
    return node


def whole_constant(node: Node) -> int | None:
    """The value of a whole constant."""
    if node["type"] != "VALUE_CONSTANT" or node["literal"]["kind"] != "INTEGER":
        return None
    return int(node["literal"]["text"].replace("_", ""))


def text_constant(node: Node) -> str | None:
    """The value of a constant text."""
    is_text = node["type"] == "VALUE_CONSTANT" and node["literal"]["kind"] == "STRING"
    return str(node["literal"].get("text", "")) if is_text else None
