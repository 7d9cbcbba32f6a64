"""`groups`: what an operator is shown of one."""

import pytest

from kafka2011.cli.groups import _print_validated
from kafka2011.consumer.counting.verdicts import TopicVerdict, Validated, WindowVerdict
from tests.conftest import Run
from tests.support.memory_deployment import Deployment, numbered

ZK = ("--zookeeper", "zk:1")


@pytest.mark.parametrize("is_owned", [False, True])
def test_an_offset_past_the_end_of_the_log_is_not_ok(
    deployment: Deployment, run: Run, is_owned: bool
) -> None:
    deployment.broker_of_t(numbered(0, 5))
    deployment.admin.put("/consumers/g/offsets/t/0-0", b"5000")
    if is_owned:
        deployment.admin.create_ephemeral("/consumers/g/owners/t/0-0", b"m-0")
    done = run("groups", "describe", *ZK, "g", "--check", "--json")
    [found] = done.json["partitions"]
    assert (done.status, found["state"], found["lag"]) == (1, "STOP", None)
    assert "4,945 bytes past the end of the log" in found["reason"]
    assert found["lag_seconds"] is None
    assert run("groups", "describe", *ZK, "g", "--check").status == 1


@pytest.mark.parametrize(
    ("read_to_ms", "pending"),
    [(0, "all is"), (1_307_874_600_000, "windows that end after 2011-06-12T10:30:00.000Z are")],
)
def test_what_the_numbers_lack_while_a_broker_is_away_is_said_below_them(
    capsys: pytest.CaptureFixture[str], read_to_ms: int, pending: str
) -> None:
    click = TopicVerdict("click", "pending", 39_866, 22_126, 0, None, 0, {}, ())
    _print_validated(Validated({"click": click}, read_to_ms, "broker 1 is away"))
    assert capsys.readouterr().out.splitlines()[-1] == (
        "not all reports of the producers are read: broker 1 is away; until they are, *produced* "
        f"lacks what they counted, and {pending} pending"
    )


def test_why_a_group_is_not_complete_is_said_below_its_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    windows = (
        WindowVerdict(1_307_874_600_000, 5, 5, "pending", reason="window open"),
        WindowVerdict(1_307_874_610_000, 5, 3, "missing", 2),
        WindowVerdict(1_307_874_620_000, 5, 7, "extra", 2, "more than was reported by shop-1"),
    )
    for shown, said in (
        (windows[:1], "click, window 2011-06-12T10:30:00.000Z: pending, window open"),
        (
            windows,
            "click, window 2011-06-12T10:30:20.000Z: extra 2, more than was reported by shop-1; "
            "other windows that are not complete: 2 (--json)",
        ),
        (windows[1:2], ""),
    ):
        click = TopicVerdict("click", "pending", 9, 9, 0, None, 0, {}, shown)
        _print_validated(Validated({"click": click}, 0))
        out = capsys.readouterr().out
        assert out.splitlines()[-1] == said if said else "window" not in out


def test_the_name_of_a_group_is_safe_for_a_terminal(deployment: Deployment, run: Run) -> None:
    name = "a\x1b[31mb\nc"
    deployment.admin.put(f"/consumers/{name}/offsets/t/0-0", b"1")
    done = run("groups", "describe", *ZK, name)
    assert done.lines[0].startswith("a\\x1b[31mb\\x0ac: UNKNOWN (")
    assert "\x1b" not in done.out
