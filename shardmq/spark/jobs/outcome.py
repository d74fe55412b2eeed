"""What came of a job: its summary, or Spark's failure as one typed error with one sentence."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from shardmq import errors
from shardmq.errors import InvalidRequest, ShardmqError, from_broker

_OURS: Final = re.compile(
    r"shardmq\.errors\.(\w+): ((?:[A-Z_]+ - )?)(.*?)(?=\n\S*Traceback|\n SQLSTATE|\n\tat |\n\n|\Z)", re.DOTALL
)
"""The last line of a Python traceback that ends in an error of ours, as Spark quotes it."""

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
"""Spark's conditions that the user of the job can mend; sub-conditions, after a point, count as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a job did.

    Attributes:
        job: "publish", "export", "replay" or "deadletters".
        rows: rows that this run handled; 0 where an earlier run had done all of it.
        messages: messages that it published or acknowledged.
        bytes: of the bodies of these rows.
        seconds: from the job's start to its end, without the start of Spark.
        transaction: the name to run the job again under; "" where it has none.
        queues: the queues that messages went to, each with its ready messages now.
        notes: what else the user should know, a sentence each.
    """

    job: str
    rows: int = 0
    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    transaction: str = ""
    queues: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def rows_per_s(self) -> float:
        """Rows a second."""
        return round(self.rows / self.seconds, 1) if self.seconds else 0.0

    def as_table(self) -> dict[str, Any]:
        """The summary as a table for JSON."""
        return {**asdict(self), "seconds": round(self.seconds, 3), "rows_per_s": self.rows_per_s}


@contextlib.contextmanager
def plain_faults(doing: str) -> Iterator[None]:
    """Turn what Spark raises in the block into errors of ours.

    Args:
        doing: what is tried, as the text says it: "publishing to exchange 'flights'".

    Raises:
        ShardmqError: of the class that an executor raised, where that was ours. It has the notes of Spark's exception.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as fault:
        raise _noted(plain(doing, str(fault), fault.getCondition() or ""), fault) from fault
    except Py4JError as fault:
        raise _noted(plain(doing, str(fault), ""), fault) from fault


def _noted(error: ShardmqError, fault: BaseException) -> ShardmqError:
    """The error, with the notes of another one."""
    for note in getattr(fault, "__notes__", ()):
        error.add_note(note)
    return error


def plain(doing: str, text: str, condition: str) -> ShardmqError:
    """Find the error that the text of Spark's exception quotes.

    Args:
        doing: what was tried, as the text says it.
        text: of Spark's exception, tracebacks included.
        condition: Spark's name for the error; "" where it has none.
    """
    ours = _OURS.findall(text)
    if ours:
        name, code, said = ours[-1]
        kind: type[ShardmqError] = getattr(errors, name, ShardmqError)
        sentence = " ".join(said.split())
        fault = kind(sentence if doing in sentence else f"{doing}: {sentence}")
        return from_broker(fault) if code else fault
    if condition.partition(".")[0] in _INPUT:
        return InvalidRequest(f"{doing}: {first_sentence(text)}")
    foreign = _FOREIGN.findall(text)
    if foreign and "Traceback" in text:
        return ShardmqError(f"{doing}: {foreign[-1][0]}: {foreign[-1][1]}")
    return ShardmqError(f"{doing}: Spark says: {first_sentence(text)}")


def first_sentence(text: str) -> str:
    """The first line of a text of Spark or Java, without names of classes and conditions."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["nothing"]
    line = lines[1] if len(lines) > 1 and lines[0].startswith("An error occurred while calling") else lines[0]
    line = re.sub(r"^:? ?(?:\w+\.)+[\w$]+: ", "", line)
    line = re.sub(r"^\[[A-Z_.]+\] ", "", line)
    return re.sub(r"\s*SQLSTATE: \w+$", "", line)
