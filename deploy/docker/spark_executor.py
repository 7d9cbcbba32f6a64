#!/usr/bin/env python3
"""The command of an executor's pod on Kubernetes: becomes Spark's executor.

Spark's driver puts what the executor needs into the pod's environment (the names are those that
Spark's own image reads) and `executor` behind the command.
"""

import os
import shutil
import sys
from pathlib import Path

import pyspark

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
OPTION = "SPARK_JAVA_OPT_"
CONF_DIR = Path(__file__).resolve().parent / "spark-conf"  # the image's


def command(environment: dict[str, str]) -> list[str]:
    """What is to be executed. Raises KeyError for a variable that Spark sets and is missing."""
    numbers = sorted(int(n[len(OPTION) :]) for n in environment if n.startswith(OPTION))
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    classes = [str(CONF_DIR), environment.get("SPARK_CLASSPATH", "")]
    classes.append(f"{Path(pyspark.__file__).parent / 'jars'}/*")
    arguments = {
        "--driver-url": "SPARK_DRIVER_URL",
        "--executor-id": "SPARK_EXECUTOR_ID",
        "--cores": "SPARK_EXECUTOR_CORES",
        "--app-id": "SPARK_APPLICATION_ID",
        "--hostname": "SPARK_EXECUTOR_POD_IP",
        "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
        "--podName": "SPARK_EXECUTOR_POD_NAME",
    }
    return [
        "java",
        *(environment[f"{OPTION}{number}"] for number in numbers),
        *(f"-Xms{memory}", f"-Xmx{memory}"),
        *("-cp", ":".join(filter(None, classes)), BACKEND),
        *(word for name, key in arguments.items() for word in (name, environment[key])),
    ]


if __name__ == "__main__":
    if sys.argv[1:] != ["executor"]:
        sys.exit(
            f"spark_executor.py: Spark calls it with `executor`, not {' '.join(sys.argv[1:])!r}"
        )
    try:
        words = command(dict(os.environ))
    except KeyError as error:
        sys.exit(f"spark_executor.py: {error.args[0]} is not set: it is started by Spark, in a pod")
    if shutil.which("java") is None:
        sys.exit("spark_executor.py: there is no java")
    os.execvp(words[0], words)  # noqa: S606
