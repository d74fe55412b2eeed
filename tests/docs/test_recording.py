"""The recording of a terminal shows what its script runs, with commands that exist."""

import html
import importlib.util
import re
from typing import Any

from tests.docs.commands import parse
from tests.docs.document import ROOT

FOLDER = ROOT / "docs/recording"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("record", FOLDER / "record.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown() -> list[str]:
    """The command lines of the recording."""
    lines: dict[int, str] = {}
    piece = r'<text[^>]*clip-path="url\(#shardmq-line-(\d+)\)"[^>]*>(.*?)</text>'
    for number, text in re.findall(piece, (FOLDER / "first-minute.svg").read_text()):
        lines[int(number)] = lines.get(int(number), "") + html.unescape(text).replace("\N{NO-BREAK SPACE}", " ")
    return [line.removeprefix("$ ").rstrip() for _, line in sorted(lines.items()) if line.startswith("$ ")]


def test_it_shows_what_its_script_runs() -> None:
    record = script()
    expected = [re.escape(line).replace(r"\{pid\}", r"\d+") for line in (record.UP, *record.SCENES)]
    assert len(shown()) == len(expected)
    for line, pattern in zip(shown(), expected, strict=True):
        assert re.fullmatch(pattern, line), "`make recording` makes it anew"


def test_its_commands_are_understood() -> None:
    for line in shown():
        if line.startswith("shardmq "):
            parse(line)
