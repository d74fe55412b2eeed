"""What goes wrong in Spark, as one sentence: errors of the data source as what they were, all else without Java."""

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from shardmq import errors
from shardmq.errors import InvalidRequest, ShardmqError

_OURS: Final = re.compile(
    r"shardmq\.errors\.(\w+): (?:[A-Z_]+ - )?(.*?)(?=\n\S*Traceback|\n SQLSTATE|\n\tat |\n\n|\Z)", re.DOTALL
)
"""The last line of a Python traceback, as Spark quotes it."""

_FOREIGN: Final = re.compile(r"^(?:[a-z_]+\.)*([A-Z]\w*(?:Error|Exception|Fault)): (.+)$", re.M)

_INPUT: Final = frozenset(
    {
        "PATH_NOT_FOUND",
        "PATH_ALREADY_EXISTS",
        "UNABLE_TO_INFER_SCHEMA",
        "DATA_SOURCE_NOT_FOUND",
        "FAILED_READ_FILE",
        "CANNOT_READ_FILE_FOOTER",
        "UNRESOLVED_COLUMN",
        "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE",
    }
)
"""Conditions that whoever started the job can see to; those below them, with a point between, count too."""


@contextlib.contextmanager
def plain_faults(doing: str) -> Iterator[None]:
    """Raise what Spark raises as ours.

    Args:
        doing: what was tried, for the sentence, as "publishing to exchange 'flights'".

    Raises:
        ShardmqError: of the class that was raised in an executor, where it was ours.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as fault:
        raise plain(doing, str(fault), fault.getCondition() or "") from fault
    except Py4JError as fault:
        raise plain(doing, str(fault), "") from fault


def plain(doing: str, text: str, condition: str) -> ShardmqError:
    """The error that Spark's text tells of.

    Args:
        doing: as in `plain_faults`.
        text: of Spark's exception, tracebacks and all.
        condition: Spark's name for it, "" where it has none.
    """
    ours = _OURS.findall(text)
    if ours:
        name, said = ours[-1]
        kind = getattr(errors, name, ShardmqError)
        sentence = " ".join(said.split())
        return _made(kind, sentence if doing in sentence else f"{doing}: {sentence}")
    if condition.partition(".")[0] in _INPUT:
        return InvalidRequest(f"{doing}: {first_sentence(text)}")
    foreign = _FOREIGN.findall(text)
    if foreign and "Traceback" in text:
        return ShardmqError(f"{doing}: {foreign[-1][0]}: {foreign[-1][1]}")
    return ShardmqError(f"{doing}: Spark says: {first_sentence(text)}")


def first_sentence(text: str) -> str:
    """The first line of what Spark or Java says, without names of classes and conditions."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["nothing"]
    line = lines[1] if len(lines) > 1 and lines[0].startswith("An error occurred while calling") else lines[0]
    line = re.sub(r"^:? ?(?:\w+\.)+[\w$]+: ", "", line)
    line = re.sub(r"^\[[A-Z_.]+\] ", "", line)
    return re.sub(r"\s*SQLSTATE: \w+$", "", line)


def _made(kind: type[ShardmqError], text: str) -> ShardmqError:
    return kind(text)
