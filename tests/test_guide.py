"""What the guide says is so: its examples run, its tables name all that exists and nothing else."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from shardmq.cmd.run.locks import hold_port
from shardmq.topology.arguments import CONSISTENT_HASH_ARGUMENTS, QUEUE_ARGUMENTS
from shardmq.topology.exchanges import TYPES

ROOT = Path(__file__).resolve().parent.parent
GUIDE = (ROOT / "GUIDE.md").read_text()
RABBITMQ = ROOT / "tests/data/rabbitmq-3.10-definitions.json"
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", GUIDE, re.MULTILINE | re.DOTALL))
TLS = "TLS and keys between processes"


def blocks(title: str, language: str) -> list[str]:
    """The code of a language in a section."""
    return re.findall(rf"^```{language}\n(.*?)^```$", SECTIONS[title], re.MULTILINE | re.DOTALL)


def python(code: str, folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("title", [title for title in SECTIONS if title != TLS])
def test_the_examples_of_a_section_run_as_written(title: str, broker: Broker, tmp_path: Path) -> None:
    shutil.copy(RABBITMQ, tmp_path / "rabbitmq-definitions.json")
    here = f":{broker.port}"
    for code in blocks(title, "python"):
        python(code.replace(":5672", here), tmp_path)
    for lines in blocks(title, "sh"):
        program = f'shardmq() {{ {shlex.join(command())} "$@"; }}\n'
        ran = subprocess.run(
            ["sh", "-e", "-c", program + lines.replace(":5672", here)],
            env=environment(SHARDMQ_URL=broker.url),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_example_with_tls_runs_as_written(
    start_broker: Callable[..., Broker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    authority = trustme.CA()
    authority.cert_pem.write_to_path("authority.pem")
    for name, of in (("server", "localhost"), ("client", "a@client")):
        certificate = authority.issue_cert(of)
        certificate.cert_chain_pems[0].write_to_path(f"{name}.pem")
        certificate.private_key_pem.write_to_path(f"{name}.key")
    with hold_port("127.0.0.1", 0) as free:
        port = str(free)
    (line,), (code,) = blocks(TLS, "sh"), blocks(TLS, "python")
    program, up, *options = shlex.split(line.replace("5671", port))
    assert (program, up) == ("shardmq", "up")
    start_broker(shards=1, options=options)
    python(code.replace("5671", port), tmp_path)


def first_cells(title: str) -> set[str]:
    """All that stands between backticks in the first columns of a section's tables."""
    rows = re.findall(r"^\| (`.*?) \|", SECTIONS[title], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_tables_of_arguments_have_all_there_are_and_no_others() -> None:
    title = "Exchanges, queues and their arguments"
    assert first_cells(title) == {*QUEUE_ARGUMENTS, *CONSISTENT_HASH_ARGUMENTS, *TYPES}


def anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def test_its_contents_lead_to_every_section() -> None:
    contents = GUIDE.partition("\n## ")[0]
    assert re.findall(r"\]\(#([^)]+)\)", contents) == [anchor(title) for title in SECTIONS]


def test_links_to_sections_lead_somewhere() -> None:
    titles = re.findall(r"^###? ([^\n]+)$", GUIDE, re.MULTILINE)
    assert {*re.findall(r"\]\(#([^)]+)\)", GUIDE)} <= {anchor(title) for title in titles}


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?:|#)([^)#]+)", GUIDE))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
