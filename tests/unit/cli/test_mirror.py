import pytest

from tests.conftest import Run


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--consumer.config", "a"], "go together"),
        (["file", "--consumer.config", "a", "--producer.config", "b"], "one properties file"),
        (
            ["--consumer.config", "nosuch", "--producer.config", "nosuch"],
            "cannot read the settings in nosuch",
        ),
        ([], "source.zk.connect, target.zk.connect are required"),
        (["--whitelist", "a", "--blacklist", "b", "--set", "source.zk.connect=h:1"], "required"),
        (["offsets", "--zookeeper", "h:1", "--topic", "t", "--source-offset", "1"], "--partition"),
        (["offsets", "--zookeeper", "h:1", "--topic", "t", "--partition", "1"], "BROKER-PARTITION"),
    ],
)
def test_what_does_not_fit_is_status_2_with_the_reason(
    words: list[str], reason: str, run: Run
) -> None:
    status, _, err = run("mirror", *words)
    assert status == 2
    assert reason in err


def test_help_is_of_the_mirror_itself(run: Run) -> None:
    for words, option in (([], "--consumer.config"), (["offsets"], "--source-offset")):
        status, out, _ = run("mirror", *words, "--help")
        assert status == 0
        assert option in out
