import subprocess
import sys

import pytest

from tests import ROOT


def mirror(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "kafka2011", "mirror", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--consumer.config", "a"], "go together"),
        (["file", "--consumer.config", "a", "--producer.config", "b"], "one properties file"),
        (["--consumer.config", "nosuch", "--producer.config", "nosuch"], "cannot read nosuch"),
        ([], "source.zk.connect is required"),
        (["--whitelist", "a", "--blacklist", "b", "--set", "source.zk.connect=h:1"], "required"),
        (["offsets", "--zookeeper", "h:1", "--topic", "t", "--source-offset", "1"], "--partition"),
    ],
)
def test_what_does_not_fit_is_one_line_and_status_2(words: list[str], reason: str) -> None:
    status, told = mirror(*words)
    assert status == 2
    assert reason in told


def test_help_is_of_the_mirror_itself() -> None:
    status, told = mirror("--help")
    assert status == 0
    assert "--consumer.config" in told
    assert "--source-offset" in mirror("offsets", "--help")[1]
