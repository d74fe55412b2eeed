"""The public face."""

import subprocess
import sys

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker


def python(program: str) -> str:
    """What a program prints."""
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=20
    ).stdout


@pytest.mark.parametrize("name", shardmq.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(shardmq, name) is not None
    assert name in dir(shardmq)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(shardmq, "nonsense")  # noqa: B009


def test_importing_the_package_loads_no_client() -> None:
    assert python("import sys, shardmq; print([name for name in sys.modules if name.startswith('shardmq.')])") == "[]\n"


def test_a_program_that_ends_in_the_middle_of_consuming_ends_at_once(broker: Broker) -> None:
    program = f"""
import shardmq
connection = shardmq.connect({broker.url!r})
channel = connection.channel()
channel.queue_declare("left")
channel.basic_publish("", "left", b"x")
messages = channel.consume("left")
print(next(messages).body)
"""
    assert python(program) == "b'x'\n"
