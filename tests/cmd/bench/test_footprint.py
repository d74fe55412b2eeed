"""`shardmq bench footprint`: what a broker takes at rest, for a large message, and to start."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shardmq.cmd.bench.footprint.processes import taken_by
from shardmq.cmd.main import run

FEW = ["--seconds", "0.5", "--connections", "5", "--size-mib", "4", "--segments", "200", "--delayed", "1000"]


def test_what_a_broker_takes_is_measured_and_recorded(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    pytest.importorskip("pika")
    assert run(["bench", "footprint", *FEW, "--disk", str(tmp_path), "--record", str(tmp_path), "--json"]) == 0
    figures = json.loads(capsysbinary.readouterr().out.splitlines()[-1])
    rest, large, starts = (figures[part] for part in ("rest", "large-messages", "checks-at-start"))
    assert [row["id"] for row in rest] == ["start", "idle", "memory", "amqp_connection"]
    assert all(re.match(r"[\d.]+ ", row["measured"]) for row in rest)
    assert [row["id"] for row in large] == ["published", "native", "amqp", "crossing"]
    for row in large:
        assert 4 << 20 <= row["bytes"]["gateway"] <= 40 << 20, "a body is held at least once"
        assert row["bytes"]["shard"] <= 40 << 20
    assert large[0]["bytes"]["shard"] >= 4 << 20
    assert [row["what"] for row in starts] == [
        "200 stored segments (20,000 messages)",
        "the same with 1,000 delayed messages",
    ]
    for part in ("rest", "large-messages", "checks-at-start"):
        recorded = json.loads((tmp_path / f"{part}.json").read_bytes())
        assert [{**row, "recorded": recorded["recorded"]} for row in figures[part]] == recorded["rows"]
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_a_part_alone_is_a_table(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["bench", "footprint", "--part", "checks-at-start", *FEW, "--disk", str(tmp_path)]) == 0
    shown = [line.split("\t") for line in capsysbinary.readouterr().out.decode().splitlines()]
    assert [row[0] for row in shown] == [
        "200 stored segments (20,000 messages)",
        "the same with 1,000 delayed messages",
    ]
    assert all(row[1].endswith(" s") for row in shown)


def test_without_pika_it_says_what_to_install_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert run(["bench", "footprint", *FEW]) == 1
    told = capsys.readouterr()
    assert "pika is not installed: pip install 'shardmq[bench]'" in told.err
    assert "from start to ready" not in told.err


TAKES_FOR_A_MOMENT = """
for line in open(0):
    taken = bytearray(b"x") * (32 << 20)
    del taken
    print("done", flush=True)
"""


def test_memory_that_was_taken_for_a_moment_counts() -> None:
    words = [sys.executable, "-c", TAKES_FOR_A_MOMENT]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers, asks = process.stdout, process.stdin

        def work() -> None:
            asks.write("take\n")
            asks.flush()
            assert answers.readline() == "done\n"

        pids = {"shard-0": process.pid}
        assert taken_by(work, pids)["shard"] >= 30 << 20
        assert taken_by(lambda: None, pids)["shard"] < 1 << 20, "what was taken before counts no more"
        asks.close()
