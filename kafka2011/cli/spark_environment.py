"""What PySpark must find in the environment when Python starts it, not spark-submit."""

import os
import sys


def prepare() -> None:
    """Use this interpreter for Spark's workers, PySpark's own jars, and settings for a small
    machine; whatever the user's environment says already stays."""
    from kafka2011.services.warehouse.session import CONF_DIR

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_CONF_DIR", str(CONF_DIR))
