"""Settings of `kafka2011 registry`."""

from dataclasses import dataclass
from pathlib import Path

from kafka2011.runtime.config import one_of, path, setting, text, whole
from kafka2011.runtime.process_config import ProcessConfig
from kafka2011.services.schema_registry.compatibility import LEVELS

PORT_DEFAULT = 8081


@dataclass(frozen=True, kw_only=True)
class SchemaRegistryConfig(ProcessConfig):
    """Where it listens, where it keeps its file, how large a schema may be."""

    bind: str = setting(
        "registry.bind", "127.0.0.1", text, "address of the registry; it has no login"
    )
    port: int = setting(
        "registry.port", PORT_DEFAULT, whole(0, 65535), "its port; 0 takes a free one"
    )
    data_dir: Path = setting("data.dir", Path("var/registry"), path, "directory of registry.sqlite")
    zk_connect: str = setting(
        "zk.connect", "", text, "ZooKeeper to be found in; empty: not registered there"
    )
    level: str = setting(
        "registry.compatibility",
        "BACKWARD",
        one_of(*LEVELS),
        "compatibility level until PUT /config sets another",
    )
    request_bytes_max: int = setting(
        "registry.request.bytes.max", 2_000_000, whole(1000), "largest body of a request, bytes"
    )
    schema_bytes_max: int = setting(
        "registry.schema.bytes.max", 1_000_000, whole(100), "largest schema, bytes"
    )
    schema_depth_max: int = setting(
        "registry.schema.depth.max", 64, whole(1, 100), "how deep types may nest in types"
    )
