"""Numbers, variables and command lines in the documents are those of the code."""

import re
from pathlib import Path

import click
import pytest

from shardmq import limits
from shardmq.bus.spinning import AWAKE_SECONDS
from shardmq.client.api import defaults
from shardmq.client.api.hooks import RETURNS_BYTES_MAX
from shardmq.cmd.main import COMMANDS, cli
from shardmq.cmd.terminal import exit_codes
from shardmq.coordinator.storage import store as coordinator_store
from shardmq.gateway.authentication import failed_logins, login_queue, refused_logins
from shardmq.gateway.handlers.atomic_commit import AT_ONCE_BYTES
from shardmq.gateway.session.client_socket import HELD_BYTES_MAX
from shardmq.gateway.state.message_loans import STALLED_SECONDS
from shardmq.gateway.wakefulness import WORK_SHARE_MAX
from shardmq.runtime import memory, watermarks
from shardmq.shards.handlers import reservations
from shardmq.shards.queues.ready_messages import MARK_LEAP
from shardmq.shards.queues.segment_log import COMPACT_TOTAL_MIN
from shardmq.shards.state.deduplication import PRODUCERS_MAX
from shardmq.shards.storage.entries import RANGES_MAX
from shardmq.storage import compaction, disk_space
from shardmq.storage.lmdb_engine import LOGGED_BYTES_MAX
from shardmq.topology.entities import USER_TAGS
from shardmq.topology.expressions import MATCH_SECONDS
from tests.docs.commands import parse
from tests.docs.document import ROOT, Document, documents

DAY_MS = 24 * 3600 * 1000
WORDS = {5: "five", 7: "seven", 10: "ten"}


def mega(size: int) -> str:
    return str(size >> 20)


FACTS = {
    "docs/operations/limits.md": (
        f"a message's body | {mega(limits.MESSAGE_BYTES_MAX)} MiB | `--message-size-max`, up to "
        f"{mega(limits.MESSAGE_BYTES_HIGHEST)} MiB",
        f"a message's properties | {limits.PROPERTIES_BYTES_MAX >> 10} KiB",
        f"{memory.MEMORY_SHARE} of the machine's, and {mega(memory.MEMORY_BYTES_MIN)} MiB for each at least",
        f"{mega(watermarks.DISK_FREE_BYTES)} MB ({mega(watermarks.SMALL_DISK_FREE_BYTES)} MB on disks below "
        f"{watermarks.SMALL_DISK_BYTES >> 30} GB)",
        f"unconfirmed messages of a publisher | {defaults.WINDOW:,} |",
        f"unacked messages of a consumer | {defaults.PREFETCH:,} |",
        f"channels of a connection | {limits.CHANNELS_MAX:,} |",
        f"a delay | {limits.DELAY_MS_MAX // DAY_MS} days |",
        f"a time to live, of messages and queues | {WORDS[limits.LIFE_MS_MAX // (365 * DAY_MS)]} years |",
        f"a committed transaction's name | remembered for {WORDS[limits.COMMITTED_KEPT_MS // DAY_MS]} days",
        f"name | remembered for {WORDS[reservations.ACKNOWLEDGED_MS // DAY_MS]} days; the last "
        f"{reservations.RESERVATIONS_MAX:,} of a queue, the last {reservations.ACKNOWLEDGED_MAX:,} of a shard",
        f"hands a shard {mega(limits.PUBLISH_WINDOW_BYTES)} MiB before it waits for confirms",
        f"Where that is over {limits.LINK_SILENCE_SECONDS:.0f} seconds the shard is taken for dead",
        f"little is left in it ({mega(compaction.COPY_BYTES_MAX)} MB)",
        f"when {mega(compaction.SLACK_BYTES_MIN)} MB have been free for {WORDS[round(compaction.SLACK_SECONDS)]} "
        "seconds",
        f"with up to {mega(compaction.COPY_AT_START_BYTES_MAX)} MB left",
        f"{mega(disk_space.RESERVE_BYTES)} MB per shard",
        f"({mega(coordinator_store.RESERVE_BYTES)} MB for the coordinator)",
        f"beyond a budget ({mega(limits.SHARD_MEMORY_BYTES)} MB a shard)",
    ),
    "docs/operations/README.md": (f"wait for it, up to {limits.DECLARE_SECONDS:.0f} s, then are refused",),
    "docs/operations/troubleshooting.md": (
        f"up to {MARK_LEAP:,} messages of a queue",
        f"refused after {limits.DECLARE_SECONDS:.0f} s",
    ),
    "docs/guarantees.md": (f"up to {MARK_LEAP:,} messages of a queue",),
    "docs/protocol.md": (f"1 to {limits.RECORD_BATCH_RECORDS_MAX:,} messages",),
    "docs/security.md": (
        f"After {WORDS[failed_logins.FREE]} failures",
        f"an IPv6 network of {failed_logins.NETWORK_BITS} bits",
        f"later and later, up to {failed_logins.DELAY_SECONDS_MAX:.0f} seconds",
        f"No more than {login_queue.PLACES} are tried meanwhile",
        f"has {login_queue.KNOWN_PLACES} tries at once",
        f"the first {WORDS[refused_logins.COMPLAINTS_MAX]} refusals of a minute",
        f"takes longer than {MATCH_SECONDS * 1000:.0f} ms to match",
    ),
    "docs/amqp.md": (
        f"on one shard and no more than {mega(AT_ONCE_BYTES)} MB",
        f"up to {mega(HELD_BYTES_MAX)} MB of a connection",
        f"have at most {mega(limits.MESSAGE_BYTES_MAX)} MiB, as in RabbitMQ 4",
    ),
    "docs/architecture.md": (
        f"has {COMPACT_TOTAL_MIN:,} messages stored and less than half of them valid",
        f"beyond a budget ({mega(limits.SHARD_MEMORY_BYTES)} MB a shard)",
        f"Commits over {LOGGED_BYTES_MAX >> 10} KB go to LMDB directly",
        f"stays awake for {AWAKE_SECONDS * 1000:.1f} ms",
        f"takes less than {WORK_SHARE_MAX} of a processor",
    ),
    "docs/guide/consuming.md": (
        f"up to {MARK_LEAP:,} messages of a queue",
        f"each consumer's: {defaults.PREFETCH:,} unless told otherwise",
        f"up to {mega(limits.DELIVERY_WINDOW_BYTES)} MB for each consumer",
        f"{limits.LEAST_WINDOW_BYTES >> 10} KB for each of a thousand",
        f"{mega(limits.LOANS_BYTES)} MB of messages larger than that",
        f"of a large message for {STALLED_SECONDS:.0f} seconds",
    ),
    "docs/guide/publishing.md": (
        f"remembers {RANGES_MAX} ranges of numbers",
        f"remembers {PRODUCERS_MAX:,} producers",
        f"over {mega(RETURNS_BYTES_MAX)} MB of returned messages",
        f"at most {mega(limits.MESSAGE_BYTES_MAX)} MiB",
        f"have {limits.PROPERTIES_BYTES_MAX >> 10} KiB of their own",
    ),
    "docs/guide/reading.md": (
        f"is remembered for {WORDS[reservations.ACKNOWLEDGED_MS // DAY_MS]} days",
        f"the last {reservations.RESERVATIONS_MAX:,} such names are kept, of a shard the last "
        f"{reservations.ACKNOWLEDGED_MAX:,}",
    ),
    "docs/guide/time.md": (f"(up to {limits.DELAY_MS_MAX // DAY_MS} days)",),
    "docs/spark.md": (
        f"remembered for {WORDS[limits.COMMITTED_KEPT_MS // DAY_MS]} days",
        f"remembers the name for {WORDS[reservations.ACKNOWLEDGED_MS // DAY_MS]} days, and of a queue the last "
        f"{reservations.RESERVATIONS_MAX:,} names",
    ),
}
"""What a page says of a number, by page."""


@pytest.mark.parametrize(("page", "fact"), [(page, fact) for page, facts in FACTS.items() for fact in facts])
def test_numbers_are_those_of_the_code(page: str, fact: str) -> None:
    assert fact in " ".join((ROOT / page).read_text().split())


def test_the_page_of_commands_has_all_exit_codes() -> None:
    named = re.findall(r"^\| (\d+) \|", (ROOT / "docs/operations/commands.md").read_text(), re.MULTILINE)
    ours = {value for name, value in vars(exit_codes).items() if name.startswith("EXIT_")}
    assert set(map(int, named)) == ours | {0, click.UsageError.exit_code}


def test_the_page_of_security_has_all_tags() -> None:
    tags = Document(ROOT / "docs/security.md").section("Tags")
    rows = re.findall(r"^\| (`.*?) \|", tags, re.MULTILINE)
    assert {tag for row in rows for tag in re.findall(r"`(\w+)`", row)} == set(USER_TAGS)


def variables(command: click.Command) -> set[str]:
    """The environment's names of all options of a command, and of those below it."""
    below = command.commands.values() if isinstance(command, click.Group) else ()
    own = {parameter.envvar for parameter in command.params if isinstance(parameter.envvar, str)}
    return own.union(*map(variables, below))


def test_variables_of_the_environment_that_documents_name_exist() -> None:
    with click.Context(cli) as context:
        known = set().union(*(variables(cli.get_command(context, name) or cli) for name in COMMANDS))
    for document in documents():
        named = set(re.findall(r"\bSHARDMQ_[A-Z]+(?:_[A-Z]+)*\b", document.text))
        assert named <= known, document.name


def command_lines(document: Document) -> list[str]:
    """The command lines of shardmq in blocks that no test runs."""
    is_run = document.name.startswith(("README.md", "docs/"))
    blocks = [block for block in document.blocks if block.language == "sh" and not (is_run and block.runs)]
    lines = [line for block in blocks for line in block.code.splitlines()]
    return [line for line in lines if re.match(r"(\S*/)?shardmq ", line)]


LINES = [
    pytest.param(line, id=f"{document.name}: {line[:60]}")
    for document in documents()
    for line in command_lines(document)
]


@pytest.mark.parametrize("line", LINES)
def test_command_lines_that_no_test_runs_are_understood(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHARDMQ_NEW_PASSWORD", "not asked for")
    for folder in ("shardmq-data", "DATA_DIR", "monday"):
        Path(folder).mkdir()
    for file in ("server.pem", "server.key", "authority.pem"):
        Path(file).touch()
    parse(line)
