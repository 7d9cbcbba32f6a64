"""Settings of `kafka2011 registry`."""

from dataclasses import dataclass
from pathlib import Path

from kafka2011.runtime.config import one_of, setting, text, whole
from kafka2011.runtime.shared_settings import DataDir, ZooKeeperConnect, shared
from kafka2011.services.schema_registry.compatibility import LEVELS

PORT_DEFAULT = 8081


@dataclass(frozen=True, kw_only=True)
class SchemaRegistryConfig(ZooKeeperConnect, DataDir):
    """The address to listen on, the directory of the store, and the limits of a schema."""

    bind: str = setting(
        "registry.bind", "127.0.0.1", text, "address to listen on; the registry has no login"
    )
    port: int = setting(
        "registry.port", PORT_DEFAULT, whole(0, 65535), "port to listen on; 0: any free port"
    )
    data_dir: Path = shared(
        DataDir, "data.dir", default=Path("var/registry"), doc="directory of registry.sqlite"
    )
    zk_connect: str = shared(
        ZooKeeperConnect,
        "zk.connect",
        doc="ZooKeeper in which this process is registered; empty: not registered",
    )
    level: str = setting(
        "registry.compatibility",
        "BACKWARD",
        one_of(*LEVELS),
        "compatibility level until PUT /config sets another",
    )
    request_bytes_max: int = setting(
        "registry.request.bytes.max", 2_000_000, whole(1000), "largest request body, bytes"
    )
    schema_bytes_max: int = setting(
        "registry.schema.bytes.max", 1_000_000, whole(100), "largest schema, bytes"
    )
    schema_depth_max: int = setting(
        "registry.schema.depth.max", 64, whole(1, 100), "deepest nesting of types in a schema"
    )
