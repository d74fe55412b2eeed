"""Definitions out of one broker and into another, and those of RabbitMQ's."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]

RABBIT = {
    "rabbit_version": "3.13.7",
    "users": [
        {
            "name": "carrot",
            "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["administrator"],
            "limits": {},
        }
    ],
    "vhosts": [{"name": "field"}],
    "permissions": [{"user": "carrot", "vhost": "field", "configure": ".*", "write": ".*", "read": ".*"}],
    "exchanges": [
        {
            "name": "rows",
            "vhost": "field",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
    ],
    "queues": [
        {"name": "beds", "vhost": "field", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 5}}
    ],
    "bindings": [
        {
            "source": "rows",
            "vhost": "field",
            "destination": "beds",
            "destination_type": "queue",
            "routing_key": "#",
            "arguments": {},
        }
    ],
    "policies": [{"vhost": "field", "name": "p", "pattern": ".*", "definition": {}, "priority": 0}],
}


def without_version(definitions: dict[str, object]) -> dict[str, object]:
    return {noun: rows for noun, rows in definitions.items() if isinstance(rows, list)}


@pytest.mark.usefixtures("at")
def test_what_one_broker_exports_another_imports(
    printed: Printed, parsed: Parsed, start_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    printed("exchange", "declare", "flow", "--type", "topic")
    printed("queue", "declare", "sink", "-a", "x-message-ttl=60000")
    printed("binding", "declare", "flow", "sink", "a.#")
    printed("user", "add", "gina", "--password", "g", "--tag", "monitoring")
    printed("permission", "set", "gina", ".*", ".*", ".*")
    file = tmp_path / "definitions.json"
    assert parsed("definitions", "export", str(file))["exported"]["queues"] == 1
    assert file.stat().st_mode & 0o077 == 0
    exported = parsed("definitions", "export")
    assert json.loads(file.read_text()) == exported
    other = start_broker(shards=1)
    assert parsed("definitions", "import", str(file), "--url", other.url)["imported"]["queues"] == 1
    assert without_version(parsed("definitions", "export", "--url", other.url)) == without_version(exported)
    with shardmq.connect(f"shardmq://gina:g@127.0.0.1:{other.port}/") as connection:
        connection.channel().basic_publish("flow", "a.b", b"routed")
    assert printed("consume", "sink", "-n", "1", "--url", other.url) == b"routed\n"


def test_definitions_of_rabbitmq_load_from_stdin(at: Broker, parsed: Parsed) -> None:
    loaded = subprocess.run(
        command("definitions", "import", "-", "--json"),
        env=environment(SHARDMQ_URL=at.url),
        input=json.dumps(RABBIT).encode(),
        capture_output=True,
        timeout=30,
        check=True,
    )
    outcome = json.loads(loaded.stdout)
    assert {noun: count for noun, count in outcome["imported"].items() if count} == {
        "users": 1,
        "vhosts": 1,
        "permissions": 1,
        "exchanges": 1,
        "queues": 1,
        "bindings": 1,
    }
    assert any("polic" in sentence for sentence in outcome["skipped"])
    assert "carrot" in {row["name"] for row in parsed("user", "list")}
    with shardmq.connect(at.url) as connection:
        connection.permission_put("guest", "field", ".*", ".*", ".*")
    (queue,) = parsed("queue", "list", "--url", f"shardmq://127.0.0.1:{at.port}/field")
    assert (queue["name"], queue["arguments"]) == ("beds", {"x-max-length": 5})


@pytest.mark.usefixtures("at")
@pytest.mark.parametrize("text", ["", "[]", "{not json", "3"])
def test_what_is_no_json_object_is_refused(refused: Callable[..., str], tmp_path: Path, text: str) -> None:
    (tmp_path / "d.json").write_text(text)
    assert "no JSON object" in refused("definitions", "import", str(tmp_path / "d.json"))


def test_an_export_over_an_older_one_is_for_its_user_alone(at: Broker, tmp_path: Path, printed: Printed) -> None:
    file, link = tmp_path / "definitions.json", tmp_path / "link"
    file.write_text("older")
    file.chmod(0o644)
    link.symlink_to(file)
    printed("definitions", "export", str(link))
    assert file.stat().st_mode & 0o777 == 0o600
    assert link.is_symlink()
    assert "queues" in json.loads(file.read_text())
    words = command("definitions", "export", "/dev/stdout", "--json")  # no file: there is nothing to replace
    done = subprocess.run(words, env=environment(SHARDMQ_URL=at.url), capture_output=True, timeout=60, check=True)
    exported, _, outcome = done.stdout.rstrip().rpartition(b"\n")
    assert json.loads(exported)["queues"] == json.loads(file.read_text())["queues"]
    assert json.loads(outcome)["file"] == "/dev/stdout"


def test_an_export_that_finds_no_room_leaves_the_older_one(at: Broker, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    file.write_text("older")
    words = command("definitions", "export", str(file))
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 0 && exec "$@"', "sh", *words],  # no file has room for a byte
        env=environment(SHARDMQ_URL=at.url),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "File too large" in done.stderr) == (1, True), done.stderr
    assert file.read_text() == "older"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.usefixtures("at")
def test_an_export_that_cannot_be_written_says_so(tmp_path: Path, refused: Callable[..., str]) -> None:
    assert "No such file or directory" in refused("definitions", "export", str(tmp_path / "none" / "file"))
