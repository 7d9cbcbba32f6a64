"""Refuses mirrors that would copy in a cycle.

Each cluster has its own identity in its ZooKeeper, so that two ways to write the same address, or a
proxy in between, do not hide that source and target are one. A target records all clusters that its
data comes from, through however many mirrors; a mirror that would close a cycle is refused.
"""

from kafka2011.coordination import paths
from kafka2011.coordination.cluster import cluster_id
from kafka2011.coordination.registry import Registry


class MirrorCycle(ValueError):
    """The mirror would copy messages back to where they came from. One line; exit with 2."""


def refuse_cycles(source: Registry, target: Registry, group: str) -> None:
    """Check, and enter the source (and the clusters that feed it) into the target's list.

    If two mirrors in opposite directions start at the same moment, each sees the other's entry, and
    both are refused. Raises MirrorCycle, or CoordinationError.
    """
    source_id, target_id = cluster_id(source), cluster_id(target)
    if source_id == target_id:
        raise MirrorCycle("source.zk.connect and target.zk.connect are the same cluster")
    upstream = _upstream(source, target_id)
    known = set(target.children(paths.UPSTREAM))
    for cluster in (source_id, *upstream):
        target.put(paths.upstream_path(cluster), group.encode())
    try:
        _upstream(source, target_id)
    except MirrorCycle:
        for cluster in {source_id, *upstream} - known:
            target.delete(paths.upstream_path(cluster))
        raise


def _upstream(source: Registry, target_id: str) -> list[str]:
    """The clusters that feed the source. Raises MirrorCycle when the target is among them."""
    upstream = source.children(paths.UPSTREAM)
    if target_id in upstream:
        raise MirrorCycle(
            f"the source cluster is itself fed from the target cluster: mirroring back would send "
            f"every message in a circle (if that mirror is gone for good, delete "
            f"{paths.upstream_path(target_id)} in the source's ZooKeeper)"
        )
    return upstream
