"""Makes Spark know `format("kafka2011")` without registration.

Spark imports every top-level module whose name starts with `pyspark_` and takes its DefaultSource.
"""

from consumer.spark_source import Kafka2011DataSource


class DefaultSource(Kafka2011DataSource):
    """The class that Spark looks for."""
