"""Whether two primaries of a group answered at the same time, or confirmed the same place of its log.

Logs of processes say when a term begins and when its primary knows that it has ended: a frozen one knows it late, and
does no harm until then. Clients see answers, and not of which term they are. So processes note what they answer, see
`sitecustomize.py`, and two things must hold for any two terms of a group:

* What was released in the older one is before the first record of the newer one, whatever clocks show. Else one place
  of the log has been confirmed twice, with different records.
* Whoever leads the older one did not look at its lease and find it valid after an answer of the newer one had been
  sent. The first of these times is taken before, the second one after, both from the machine's one clock: however long
  a process stands in between, two answers that are found to overlap did. Where the hosts' clocks ran too unevenly for
  leases just before, this says nothing.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shardmq.replication.core.group import Group
from tests.hosts.faults.primaries.sitecustomize import FOLDER, ROW

LEASE_SECONDS_MAX: Final = 2.0
"""How long a lease lasts by the machine's clock where the primary's runs at half its rate."""

Spans = Iterable[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Answers:
    """What one process answered in one second of one term.

    Attributes:
        group: whose primary it was.
        host: on which.
        pid: of the process.
        term: that it led.
        first_index: of the term's first record.
        released: index up to which it may have answered.
        began: machine time after the first answer was sent.
        ended: machine time before the lease was looked at for the last one.
    """

    group: str
    host: str
    pid: int
    term: int
    first_index: int
    released: int
    began: float
    ended: float


class AnswerNotes:
    """Notes of all processes of a broker.

    Args:
        folder: for them; it is made.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    @property
    def variables(self) -> dict[str, str]:
        """What processes have in their environment that are to note what they answer."""
        return {FOLDER: str(self._folder), "PYTHONPATH": import_path()}

    def read(self, since: float = 0.0) -> list[Answers]:
        """Return what was answered since a machine time."""
        return [answers for file in sorted(self._folder.iterdir()) for answers in _rows(file) if answers.ended >= since]


def import_path(build: Path | None = None) -> str:
    """PYTHONPATH of processes that note what they answer.

    Args:
        build: folder with another version's code; None for this one's.
    """
    code = os.environ.get("PYTHONPATH", "") if build is None else str(build)
    return os.pathsep.join(filter(None, (str(Path(__file__).parent), code)))


def missing(answers: Iterable[Answers], groups: Mapping[str, Group]) -> list[str]:
    """Groups whose primary of now has noted no answer yet."""
    noted = {(each.group, each.term, each.host) for each in answers}
    return sorted(name for name, group in groups.items() if (name, group.term, group.primary) not in noted)


def overlaps(answers: Iterable[Answers], uneven: Spans = ()) -> list[str]:
    """Say which primaries of a group answered beside one another.

    Args:
        answers: of all groups.
        uneven: when clocks of hosts ran too unevenly for leases.
    """
    groups: dict[str, dict[int, list[Answers]]] = defaultdict(lambda: defaultdict(list))
    for each in answers:
        groups[each.group][each.term].append(each)
    spans = list(uneven)
    return [wrong for terms in groups.values() for wrong in _overlaps(terms, spans)]


def _overlaps(terms: Mapping[int, list[Answers]], uneven: Spans) -> Iterator[str]:
    """Compare each term of a group with all newer ones."""
    lowest: Answers | None = None
    earliest: Answers | None = None
    for term in sorted(terms, reverse=True):
        these = terms[term]
        processes = sorted({f"{each.host} (pid {each.pid})" for each in these})
        if len(processes) > 1:
            yield f"{these[0].group}: {' and '.join(processes)} answered in term {term}"
        most = max(these, key=lambda each: each.released)
        if lowest is not None and most.released >= lowest.first_index:
            told = f"{_who(most)} answered up to {most.released}, and {_who(lowest)} began at {lowest.first_index}"
            yield f"{most.group}: {told}"
        late = [each for each in these if earliest is not None and each.ended > earliest.began]
        late = [each for each in late if not _is_excused(each.ended, uneven)]
        if late and earliest is not None:
            last = max(late, key=lambda each: each.ended)
            seconds = last.ended - earliest.began
            yield f"{last.group}: {_who(last)} answered {seconds:.3f} s after {_who(earliest)} did"
        lowest = min(filter(None, (lowest, *these)), key=lambda each: each.first_index)
        earliest = min(filter(None, (earliest, *these)), key=lambda each: each.began)


def _is_excused(time: float, uneven: Spans) -> bool:
    return any(began <= time and time - LEASE_SECONDS_MAX <= ended for began, ended in uneven)


def _who(answers: Answers) -> str:
    return f"{answers.host} in term {answers.term}"


def _rows(file: Path) -> Iterator[Answers]:
    """Rows up to the first one that is empty."""
    host, group = file.name.split(".")
    for row in ROW.iter_unpack(file.read_bytes()):
        if not row[0]:
            return
        yield Answers(group, host, *row)
