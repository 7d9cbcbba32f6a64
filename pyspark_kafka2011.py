"""The format `kafka2011`, which Spark finds here without registration.

Spark imports every top-level module whose name starts with `pyspark_` and takes its DefaultSource.
"""

from kafka2011.services.warehouse.data_source.decoded import Kafka2011Format


class DefaultSource(Kafka2011Format):
    """The class that Spark takes from such a module."""
