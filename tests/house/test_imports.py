"""Walls between rooms: which module may import what, and that no imports close a circle."""

import sys

import pytest

from shardmq.spark import bundle
from tests.house.tree import MODULES, PACKAGES, PROCESSES, ROOT, arrows, imports, is_in

IO = frozenset({"asyncio", "socket", "selectors", "select", "ssl", "threading", "subprocess", "uvloop", "zmq", "lmdb"})


def offenders(rooms: tuple[str, ...], banned: frozenset[str] | set[str]) -> list[str]:
    """Imports in these rooms that the wall forbids, as "module imports name"."""
    return [
        f"{module} imports {name}"
        for module in MODULES
        if any(is_in(module, room) for room in rooms)
        for name in imports(module)
        if any(is_in(name, ban) for ban in banned)
    ]


@pytest.mark.parametrize(
    "room",
    [
        "shardmq.protocol",
        "shardmq.message",
        "shardmq.ranges",
        "shardmq.topology",
        "shardmq.search",
        "shardmq.definitions",
        "shardmq.client.core",
        "shardmq.coordinator.rules",
        *(f"shardmq.replication.etcd.{part}" for part in ("messages", "answers", "values", "url")),
        "shardmq.replication.etcd.watching.watched_prefix",
        "shardmq.replication.core",
    ],
)
def test_rooms_without_io_import_none(room: str) -> None:
    assert any(is_in(module, room) for module in MODULES), f"{room} is gone; name its successor here"
    assert offenders((room,), IO) == []


FLOORS = (
    ({"shardmq.cmd", "shardmq.__main__"}, 8),
    ({"shardmq.spark", "pyspark_shardmq"}, 7),
    ({"shardmq.aio", "shardmq.otel"}, 6),
    (PROCESSES, 5),
    ({"shardmq.replication"}, 4.5),
    ({"shardmq.client", "shardmq.bus", "shardmq.definitions"}, 4),
    ({"shardmq.protocol", "shardmq.search", "shardmq.topology"}, 3),
    ({"shardmq.message", "shardmq.runtime", "shardmq.storage"}, 2),
)
"""Rooms and the floor they are on; `shardmq` itself is above all of the SDK, its own modules are below everything."""

INSIDE = {
    "shardmq.gateway": (
        ("process",),
        ("server",),
        ("native", "amqp"),
        ("handlers",),
        ("authentication",),
        ("session",),
        ("state", "loop"),
        ("wakefulness",),
        ("tracing",),
        ("events",),
        ("links",),
    ),
    "shardmq.shards": (
        ("process",),
        ("replica_process",),
        ("loop", "options"),
        ("answers",),
        (
            "early_deliveries",
            "pass_size",
        ),
        ("check",),
        ("handlers",),
        ("failed_reads",),
        ("state", "consumers"),
        ("topics",),
        ("queues",),
        ("storage",),
        ("segments",),
    ),
    "shardmq.management": (
        ("process",),
        ("server", "sampling"),
        ("own", "description"),
        ("api", "metrics"),
        ("page", "web"),
        ("state",),
        ("samples", "findings", "probes", "dead_letters", "republishing"),
        ("moving",),
    ),
    "shardmq.shovels": (
        ("process",),
        ("keeper",),
        ("shovel",),
        ("local",),
        ("transfer", "native", "amqp"),
        ("ends", "amqp_connection"),
        ("message",),
    ),
    "shardmq.coordinator": (
        ("process",),
        ("replica_process",),
        ("assembly",),
        ("loop",),
        ("handlers",),
        ("state",),
        ("storage", "links"),
        ("rules",),
    ),
}
"""What stands above what in each process, from the top."""

TWINS = (
    ("shardmq.gateway.native", "shardmq.gateway.amqp"),
    ("shardmq.client.aio", "shardmq.client.sync"),
    ("shardmq.client.aio.requests", "shardmq.client.sync.requests"),
)
"""Folders of which the first has no file that the second has not: the second may need more."""


def floor(module: str) -> float:
    """Which floor a module is on."""
    if module == "shardmq":
        return 6
    return next((number for rooms, number in FLOORS if any(is_in(module, room) for room in rooms)), 1)


def test_no_import_runs_upwards() -> None:
    pairs = [(module, name) for module in MODULES for name in arrows(module)]
    assert [f"{module} imports {name}" for module, name in pairs if floor(name) > floor(module)] == []


def test_no_import_runs_upwards_in_a_process() -> None:
    upwards = set()
    for process, floors in INSIDE.items():
        levels = {room: level for level, rooms in enumerate(floors) for room in rooms}
        inside = [module for module in MODULES if module.startswith(f"{process}.")]
        for module in inside:
            for name in arrows(module):
                if name in inside and levels[name.split(".")[2]] < levels[module.split(".")[2]]:
                    upwards.add(f"{module} imports {name}")
    assert upwards == set()


def circles() -> list[list[str]]:
    """Groups of modules each of which imports all others, by way of others: Tarjan's strongly connected components."""
    graph = {module: arrows(module) for module in MODULES}
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for name in graph[module]:
            if name not in numbers:
                visit(name)
                lowest[module] = min(lowest[module], lowest[name])
            elif name in stack:
                lowest[module] = min(lowest[module], numbers[name])
        if lowest[module] == numbers[module]:
            place = stack.index(module)
            found.append(sorted(stack[place:]))
            del stack[place:]

    for module in MODULES:
        if module not in numbers:
            visit(module)
    return [group for group in found if len(group) > 1]


def test_no_imports_close_a_circle() -> None:
    assert circles() == []


def test_only_the_bus_room_opens_zeromq_sockets() -> None:
    users = {module for module in MODULES if any(is_in(name, "zmq") for name in imports(module))}
    assert [module for module in users if not is_in(module, "shardmq.bus")] == []


def test_only_the_storage_room_imports_lmdb() -> None:
    users = {module for module in MODULES if any(is_in(name, "lmdb") for name in imports(module))}
    assert [module for module in users if not is_in(module, "shardmq.storage")] == []


@pytest.mark.parametrize(
    ("room", "banned"),
    [
        ("shardmq.shards", {"shardmq.gateway", "shardmq.coordinator", "shardmq.client", "shardmq.cmd"}),
        ("shardmq.gateway", {"shardmq.shards", "shardmq.coordinator", "shardmq.client", "shardmq.cmd"}),
        ("shardmq.coordinator", {"shardmq.shards", "shardmq.gateway", "shardmq.client", "shardmq.cmd"}),
        (
            "shardmq.management",
            {"shardmq.shards", "shardmq.gateway", "shardmq.coordinator", "shardmq.bus", "shardmq.cmd"},
        ),
        (
            "shardmq.shovels",
            {"shardmq.shards", "shardmq.gateway", "shardmq.coordinator", "shardmq.management", "shardmq.bus"},
        ),
        ("shardmq.client", {"shardmq.shards", "shardmq.gateway", "shardmq.coordinator", "shardmq.cmd", "shardmq.bus"}),
        ("shardmq.client.aio", {"shardmq.client.sync"}),
        ("shardmq.client.sync", {"shardmq.client.aio"}),
        ("shardmq.gateway.native", {"shardmq.gateway.amqp"}),
        ("shardmq.gateway.amqp", {"shardmq.gateway.native"}),
        ("shardmq.protocol", PROCESSES | {"shardmq.client", "shardmq.bus"}),
        ("shardmq.bus", {"shardmq.shards", "shardmq.gateway", "shardmq.coordinator", "shardmq.client", "shardmq.cmd"}),
        ("shardmq.replication", PROCESSES | {"shardmq.client", "shardmq.cmd"}),
    ],
)
def test_rooms_do_not_reach_into_one_another(room: str, banned: set[str]) -> None:
    assert offenders((room,), banned) == []


SPARKS_OWN = {"msgpack", "pyarrow", "pyspark"}
BUNDLED = {
    "shardmq",
    "shardmq.errors",
    "shardmq.limits",
    "shardmq.urls",
    "shardmq.version",
    "shardmq.client",
    "shardmq.client.api",
    "shardmq.client.api.defaults",
    "shardmq.client.api.tls",
    "shardmq.client.api.url",
    "shardmq.client.sync",
    "shardmq.client.sync.sockets",
    "shardmq.protocol",
    "shardmq.protocol.native",
    "shardmq.protocol.native.frames",
}
"""What executors have of shardmq beside shardmq.spark: the zip brings it along, and nothing compiled."""


def strangers(module: str, others: set[str]) -> list[str]:
    """What a module imports that is not the standard library's nor in `others`: rooms of ours, and packages."""
    met = []
    for name in imports(module):
        package = name.partition(".")[0]
        room = name if name in MODULES else name.rpartition(".")[0]  # a name in a module is no module
        known = room in others if package == "shardmq" else package in others or package in sys.stdlib_module_names
        if not known and name not in others:
            met.append(f"{module} imports {name}")
    return met


def test_executors_need_no_more_than_the_zip_brings_along() -> None:
    spark = {module for module in MODULES if is_in(module, "shardmq.spark") or module == "pyspark_shardmq"}
    carried = {module for module in spark if not is_in(module, "shardmq.spark.jobs")}
    there = carried - {"shardmq.spark"}  # which imports the pipeline when it is asked to
    assert [line for module in there for line in strangers(module, carried | BUNDLED | SPARKS_OWN)] == []
    assert {f"shardmq/{name}" for name in bundle.MODULES} == {str(MODULES[name].relative_to(ROOT)) for name in BUNDLED}


def test_what_executors_have_of_shardmq_needs_the_standard_library_alone() -> None:
    beside = BUNDLED - {"shardmq"}  # which imports when it is asked to
    assert [line for module in beside for line in strangers(module, BUNDLED)] == []


def test_the_pipeline_needs_what_programs_on_drivers_have() -> None:
    pipeline = {module for module in MODULES if is_in(module, "shardmq.spark.jobs")}
    rooms = {module for module in MODULES if is_in(module, "shardmq.spark") or is_in(module, "shardmq.client")}
    messages = {"shardmq.message.record", "shardmq.message.record_batch", "shardmq.message.properties"}
    allowed = rooms | BUNDLED | SPARKS_OWN | messages | {"rich", "click", "py4j"}
    assert [line for module in pipeline for line in strangers(module, allowed)] == []


def test_the_two_fronts_have_the_same_files() -> None:
    """Twins: who knows one of the two finds their way in the other."""
    single = set()
    for one, other in TWINS:
        files = {path.name for path in PACKAGES[one].glob("*.py")}
        twins = {path.name for path in PACKAGES[other].glob("*.py")}
        single |= {f"{one} {name}" for name in files - twins}
    assert single == set()
