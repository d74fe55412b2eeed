"""Rounds after rounds of faults while clients work, then the checks."""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shardmq.cmd.bench.compare.rabbitmq import NotStarted
from shardmq.errors import ShardmqError
from tests.hosts.broker import SHARDS, HostsBroker
from tests.hosts.faults.load import Work, added_to, working
from tests.hosts.faults.nemesis import Nemesis
from tests.hosts.faults.primaries.answers import missing, overlaps
from tests.hosts.faults.replicas import differences, wait_until_quiet
from tests.hosts.faults.schedule import Fault, options, rounds
from tests.hosts.faults.spark_jobs import SparkJobs
from tests.hosts.faults.watch import Watch
from tests.hosts.hosts import CLIENT, NAMES, Hosts

HEALED_SECONDS: Final = 60.0
"""After a round, until all is whole and everybody has gone on. A busy machine is slow."""

LOOK_SECONDS: Final = 0.02

Tell = Callable[[str], None]


@dataclass
class Outcome:
    """What came of a run.

    Attributes:
        seed: of the schedule.
        counts: faults that were withstood, by kind.
        wrongs: what is wrong; empty when nothing is.
        recoveries: seconds from the end of each round's faults until all went on.
        seconds: of all rounds.
        kept: folder with logs and stores, where something is wrong.
    """

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    wrongs: list[str] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    seconds: float = 0.0
    kept: Path | None = None

    def lines(self) -> list[str]:
        """For people."""
        kinds = ", ".join(f"{count} x {kind}" for kind, count in self.counts.most_common())
        told = [f"{self.counts.total()} faults in {self.seconds:.0f} s: {kinds}"]
        if self.recoveries:
            last = sorted(self.recoveries)
            told.append(f"all went on {last[len(last) // 2]:.1f} s after a round's faults, {last[-1]:.1f} s at most")
        if self.wrongs:
            told += [f"WRONG: {wrong}" for wrong in self.wrongs]
            told.append(f"logs and stores are in {self.kept}; again: make hosts-faults SEED={self.seed}")
        return told


class Run:
    """A run of one seed.

    Args:
        seed: of the schedule.
        tell: takes lines as it goes on.
        spark: whether Spark publishes jobs, too.
        build: folder with another version's code, which hosts are upgraded to; None for versions made of this one.
    """

    def __init__(self, seed: int, tell: Tell, spark: bool = False, build: Path | None = None) -> None:
        self.outcome = Outcome(seed)
        self._tell = tell
        self._spark = spark
        self._build = build
        self._shards = SHARDS

    def run(self, faults: int, seconds: float = float("inf")) -> Outcome:
        """Have so many faults happen, or those of so many seconds, to a broker of their own.

        Raises:
            Absent: namespaces are not allowed here, or etcd or a compiler is not installed.
        """
        with Hosts() as hosts:
            broker = HostsBroker(hosts, "faults", options(self.outcome.seed))
            nemesis = Nemesis(hosts, broker, self._build)
            try:
                broker.start(*NAMES)
                broker.make_user()
                return self.befall(nemesis, faults, seconds)
            finally:
                nemesis.close()

    def befall(self, nemesis: Nemesis, faults: int, seconds: float = float("inf"), is_short: bool = False) -> Outcome:
        """Have them happen to a broker that was started after its nemesis was made; all its processes are dead then."""
        try:
            with nemesis.hosts[CLIENT].inside(), Watch(nemesis.broker.join) as watch:
                nemesis.operators.watch = watch
                self._shards = nemesis.operators.shards
                self._run(nemesis, watch, faults, seconds, is_short)
        except (AssertionError, NotStarted, ShardmqError) as fault:
            self.outcome.wrongs.append(str(fault).partition("\n---")[0])
        if self.outcome.wrongs:
            self._keep(nemesis.hosts)
        return self.outcome

    def _run(self, nemesis: Nemesis, watch: Watch, faults: int, seconds: float, is_short: bool) -> None:
        outcome, broker, since = self.outcome, nemesis.broker, watch.now()
        self._until(lambda: not watch.faults(0.0), lambda: f"groups are not whole: {watch.faults(0.0)}")
        with working(nemesis.hosts, broker.url, outcome.seed, is_short) as works:
            if self._spark:
                spark = SparkJobs(nemesis.hosts, broker)
                spark.begin()
                works.append(spark)
            began = time.monotonic()
            for number, planned in enumerate(rounds(outcome.seed)):
                if outcome.counts.total() >= faults or time.monotonic() - began > seconds:
                    break
                self._round(number, planned[: faults - outcome.counts.total()], nemesis, watch, works)
                outcome.wrongs += overlaps(nemesis.answers.read(since), nemesis.rates.uneven)
                if outcome.wrongs:
                    return
            outcome.seconds = time.monotonic() - began
            for work in works:
                self._conclude(work.name, *work.finish())
        self._conclude_primaries(nemesis, watch, since)
        wait_until_quiet(broker)
        for name in NAMES:  # all stand before any is killed, or those that are left elect anew meanwhile
            nemesis.hosts[name].freeze()
        groups = dict(watch.groups)
        for name in NAMES:
            broker.kill(name)
        assert len(groups) == 1 + self._shards, f"etcd has the groups {', '.join(sorted(groups))}"
        self._conclude("replicas", *differences(broker, groups, nemesis.operators.runs))

    def _conclude_primaries(self, nemesis: Nemesis, watch: Watch, since: float) -> None:
        """Whether two primaries answered beside one another; all that lead now have noted what they answer."""
        without = lambda: missing(nemesis.answers.read(since), watch.groups)  # noqa: E731
        self._until(lambda: not without(), lambda: f"no answer was noted of {', '.join(without())}")
        answers = nemesis.answers.read(since)
        terms = {(each.group, each.term) for each in answers}
        told = f"{len(terms)} terms of {len({group for group, _ in terms})} groups answered"
        self._conclude("primaries", told, overlaps(answers, nemesis.rates.uneven))

    def _conclude(self, what: str, told: str, wrongs: list[str]) -> None:
        self._tell(f"{what}: {told}")
        self.outcome.wrongs += wrongs

    def _round(self, number: int, faults: list[Fault], nemesis: Nemesis, watch: Watch, works: list[Work]) -> None:
        self._suffer(number, faults, nemesis)
        nemesis.heal()
        began, since = time.monotonic(), watch.now()
        self._until(nemesis.has_healed, lambda: "hosts are not up again, or a command does not end")
        up = time.monotonic() - began
        self._until(lambda: not watch.faults(since), lambda: f"groups are not whole: {watch.faults(since)}")
        whole = time.monotonic() - began
        for shard in range(self._shards, nemesis.operators.shards):
            works += added_to(nemesis.broker.url, shard, self.outcome.seed)
            self._tell(f"       clients work on shard-{shard}, too")
        self._shards = nemesis.operators.shards
        for work in works:
            steps, is_there = work.steps(), work.due()
            self._until(lambda work=work, steps=steps: work.steps() > steps, lambda: f"{work.name} does not go on")  # noqa: B023
            self._until(is_there, lambda: f"{work.name}: what was confirmed does not arrive")  # noqa: B023
            self.outcome.wrongs += work.wrongs()
        recovery = time.monotonic() - began
        self.outcome.recoveries.append(recovery)
        self.outcome.counts.update(fault.kind for fault in faults)
        parts = f"hosts were up after {up:.1f}, groups whole after {whole:.1f}"
        self._tell(f"{self.outcome.counts.total():5d}  all goes on after {recovery:.1f} s; {parts}")

    def _suffer(self, number: int, faults: list[Fault], nemesis: Nemesis) -> None:
        """Have the faults of a round begin and end, each at its time."""
        began = time.monotonic()
        agenda: list[tuple[float, int, Callable[[], str]]] = []

        def begin(fault: Fault) -> str:
            said, end = nemesis.begin(fault)
            words = ", ".join(filter(None, (fault.whom, said)))
            what = f"{fault.kind}: {words}" if words else fault.kind
            agenda.append((fault.after + fault.seconds, len(agenda), lambda: told(end(), what)))
            return f"{what}, {fault.seconds} s"

        def told(said: str, what: str) -> str:
            return f"{what} is over: {said}" if said else ""

        for place, fault in enumerate(faults):
            agenda.append((fault.after, place, lambda fault=fault: begin(fault)))
        while agenda:
            agenda.sort(key=lambda entry: entry[:2])
            at, _, act = agenda.pop(0)
            time.sleep(max(0.0, began + at - time.monotonic()))
            when = time.strftime("%T", time.gmtime())
            if said := act():
                self._tell(f"       {when} round {number}, {at:4.1f} s: {said}")

    @staticmethod
    def _until(holds: Callable[[], object], what: Callable[[], str]) -> None:
        deadline = time.monotonic() + HEALED_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"{what()}, {HEALED_SECONDS:.0f} s after all was healed"
            time.sleep(LOOK_SECONDS)

    def _keep(self, hosts: Hosts) -> None:
        self.outcome.kept = Path(tempfile.mkdtemp(prefix=f"shardmq-hosts-faults-{self.outcome.seed}-"))
        shutil.copytree(hosts.folder, self.outcome.kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.so"))
