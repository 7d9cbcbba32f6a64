"""Loads the settings of a process at its start.

The list below makes the settings one table: in an environment that several processes share, the
name of another process's setting is ignored, and a name that no process has is an error. It holds
names, imported only when one is looked for, so that no process loads the others.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from kafka2011.runtime import config, logs
from kafka2011.runtime.process_config import ProcessConfig

CONFIG_CLASSES = [
    "kafka2011.broker.config:BrokerConfig",
    "kafka2011.producer.config:ProducerConfig",
    "kafka2011.producer.tail.config:TailConfig",
    "kafka2011.consumer.config:ConsumerConfig",
    "kafka2011.services.audit.config:AuditConfig",
    "kafka2011.services.dashboard.config:DashboardConfig",
    "kafka2011.services.frontend.config:FrontendConfig",
    "kafka2011.services.mirror_maker.config:MirrorConfig",
    "kafka2011.services.online_consumer.config:OnlineConsumerConfig",
    "kafka2011.services.proxy.config:ProxyConfig",
    "kafka2011.services.schema_registry.config:SchemaRegistryConfig",
    "kafka2011.services.site.config:SiteConfig",
    "kafka2011.services.warehouse.config:WarehouseConfig",
    "kafka2011.services.warehouse.schedule.config:ScheduleConfig",
    "kafka2011.services.warehouse.streams.config:StreamConfig",
    "kafka2011.services.zookeeper.config:ZooKeeperConfig",
    "kafka2011.services.embedded.config:EmbeddedConfig",
]

Config = TypeVar("Config", bound=ProcessConfig)


def config_classes() -> list[type]:
    found: list[type] = []
    for place in CONFIG_CLASSES:
        module, _, name = place.partition(":")
        found.append(getattr(importlib.import_module(module), name))
    return found


def known_names() -> set[str]:
    """Every property name of every process."""
    return {name for cls in config_classes() for name in config.settings_of(cls)}


def load_or_exit(
    config_class: type[Config],
    file: Path | None = None,
    overrides: Sequence[str] = (),
    *,
    log_level: str = "INFO",
    **forced: Any,
) -> Config:
    """Read the settings, configure the logs, log the warnings and the settings that are not
    default.

    `log_level` is WARNING for commands whose output a person reads. `forced` are property names
    with `_` for `.` and values from the command's own options; they win over all other sources.
    Prints one line and exits with status 2 when a setting cannot be used.
    """
    words = [*overrides]
    for name, value in forced.items():
        if value is not None:
            words.append(f"{name.replace('_', '.')}={value}")
    try:
        # The other processes' names are needed only when the environment has an unknown name.
        try:
            loaded, warnings = config.load(
                config_class, file=file, overrides=words, environment=os.environ
            )
        except config.ConfigError:
            loaded, warnings = config.load(
                config_class,
                file=file,
                overrides=words,
                environment=os.environ,
                known_elsewhere=known_names(),
            )
    except config.ConfigError as error:
        sys.stderr.write(f"kafka2011: {error}\n")
        raise SystemExit(2) from None
    logs.configure(
        loaded.process_name or config_class.__name__.removesuffix("Config").lower(),
        as_json=loaded.log_format == "json",
        level=log_level,
    )
    log = logs.get_logger(__name__)
    for warning in warnings:
        log.warning("setting_ignored", detail=warning)
    log.info(
        "settings",
        **{
            name: config.without_password(str(getattr(loaded, field.name)))
            for name, field in config.settings_of(config_class).items()
            if getattr(loaded, field.name) != config.default_of(field)
        },
    )
    return loaded
