"""The house rules that a program can check: walls between rooms, sizes, the packages list, folder guides."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.spark import bundle

ROOT = Path(__file__).resolve().parent.parent
LINES_MAX = 600
FOLDER_MODULES_MAX = 13
IO = frozenset({"asyncio", "socket", "selectors", "select", "ssl", "threading", "subprocess", "uvloop", "zmq", "lmdb"})

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOMS = {"gateway": "gateway", "shards": "shards", "cmd": "cmd/shardmq"}
"""Sub-packages of shardmq that lie in the root: name to folder."""

TOPMOST = {"shardmq.spark.pyspark_shardmq": "pyspark_shardmq"}
"""Packages of the tree that are installed beside shardmq, as Spark looks for them there."""


def packages() -> dict[str, Path]:
    """Every package of the tree, by its dotted name."""
    found = {}
    for base, prefix in (
        (ROOT / "shardmq", "shardmq"),
        *((ROOT / path, f"shardmq.{name}") for name, path in ROOMS.items()),
    ):
        for guide in base.rglob("__init__.py"):
            inner = guide.parent.relative_to(base).parts
            if prefix == "shardmq" and inner and inner[0] in ROOMS:
                continue  # the links, on Pythons whose rglob follows them
            name = ".".join((prefix, *inner))
            found[TOPMOST.get(name, name)] = guide.parent
    return found


PACKAGES = packages()
MODULES = {
    f"{package}.{path.stem}" if path.stem != "__init__" else package: path
    for package, folder in PACKAGES.items()
    for path in sorted(folder.glob("*.py"))
}
PROCESSES = {"shardmq.shards", "shardmq.gateway", "shardmq.coordinator"}
SOURCES = sorted({*MODULES.values(), *(ROOT / "tests").rglob("*.py")})


def imports(module: str) -> Iterator[str]:
    """Full names of all a module imports, anywhere in it."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def is_in(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


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
    ["shardmq.protocol", "shardmq.message", "shardmq.ranges", "shardmq.topology", "shardmq.definitions"],
)
def test_rooms_without_io_import_none(room: str) -> None:
    assert any(is_in(module, room) for module in MODULES), f"{room} is gone; name its successor here"
    assert offenders((room,), IO) == []


FLOORS = (
    ({"shardmq.cmd"}, 8),
    ({"shardmq.spark", "pyspark_shardmq"}, 7),
    ({"shardmq.aio"}, 6),
    (PROCESSES, 5),
    ({"shardmq.client", "shardmq.bus", "shardmq.definitions"}, 4),
    ({"shardmq.protocol", "shardmq.topology"}, 3),
    ({"shardmq.message", "shardmq.runtime", "shardmq.storage"}, 2),
)
"""Rooms and the floor they are on; `shardmq` itself is above all of the SDK, its own modules are below everything."""

INSIDE = {
    "shardmq.gateway": (
        ("process",),
        ("server", "protocol_detector"),
        ("native", "amqp"),
        ("handlers",),
        ("authentication",),
        ("session",),
        ("state", "loop"),
        ("links",),
    ),
    "shardmq.shards": (
        ("process",),
        ("loop",),
        ("check",),
        ("handlers",),
        ("state",),
        ("queues",),
        ("storage",),
        ("segments",),
    ),
    "shardmq.coordinator": (("process",), ("loop",), ("handlers",), ("state",), ("storage", "links"), ("rules",)),
}
"""What stands above what in each process, from the top."""

NOT_YET = {
    "shardmq.gateway.amqp.connection imports shardmq.gateway.server",
    "shardmq.gateway.native.connection imports shardmq.gateway.server",
    "shardmq.gateway.session.connection imports shardmq.gateway.server",
}
"""Imports that run upwards still; the list only gets shorter."""

CIRCLES_NOT_YET = {
    "shardmq.client.core.connection": 4,
    "shardmq.gateway.session.channel": 4,
    "shardmq.gateway.amqp.channel": 14,
}
"""Circles that are left, by their first module, and how many modules each has; the list only gets shorter."""


def floor(module: str) -> int:
    """Which floor a module is on."""
    if module == "shardmq":
        return 6
    return next((number for rooms, number in FLOORS if any(is_in(module, room) for room in rooms)), 1)


def arrows(module: str) -> set[str]:
    """The modules that a module imports."""
    found = {name if name in MODULES else name.rpartition(".")[0] for name in imports(module)}
    return {name for name in found if name in MODULES and not is_in(module, name) and name != "shardmq"}


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
    assert upwards == NOT_YET


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
    assert {group[0]: len(group) for group in circles()} == CIRCLES_NOT_YET


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES.values()}), ids=lambda path: path.name)
def test_folders_are_rooms_not_warehouses(folder: Path) -> None:
    assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= FOLDER_MODULES_MAX


def test_only_the_bus_room_opens_zeromq_sockets() -> None:
    users = {module for module in MODULES if any(is_in(name, "zmq") for name in imports(module))}
    assert [module for module in users if not is_in(module, "shardmq.bus")] == []


def test_only_the_stores_import_lmdb() -> None:
    users = {module for module in MODULES if any(is_in(name, "lmdb") for name in imports(module))}
    assert users <= {
        "shardmq.storage.lmdb_engine",
        "shardmq.storage.table",
        "shardmq.shards.storage.store",
        "shardmq.coordinator.storage.store",
        "shardmq.coordinator.storage.transactions",
        "shardmq.coordinator.storage.check",
        "shardmq.shards.check.closed_store",
        "shardmq.storage.repair.repair",
        "shardmq.storage.disk_space",
        "shardmq.storage.compaction",
        "shardmq.storage.store_copy",
    }


@pytest.mark.parametrize(
    ("room", "banned"),
    [
        ("shardmq.shards", {"shardmq.gateway", "shardmq.coordinator", "shardmq.client", "shardmq.cmd"}),
        ("shardmq.gateway", {"shardmq.shards", "shardmq.coordinator", "shardmq.client", "shardmq.cmd"}),
        ("shardmq.coordinator", {"shardmq.shards", "shardmq.gateway", "shardmq.client", "shardmq.cmd"}),
        ("shardmq.client", {"shardmq.shards", "shardmq.gateway", "shardmq.coordinator", "shardmq.cmd", "shardmq.bus"}),
        ("shardmq.protocol", PROCESSES | {"shardmq.client", "shardmq.bus"}),
        ("shardmq.bus", {"shardmq.shards", "shardmq.gateway", "shardmq.coordinator", "shardmq.client", "shardmq.cmd"}),
    ],
)
def test_rooms_do_not_reach_into_one_another(room: str, banned: set[str]) -> None:
    assert offenders((room,), banned) == []


SPARKS_OWN = {"msgpack", "pyarrow", "pyspark"}
BUNDLED = {
    "shardmq",
    "shardmq.errors",
    "shardmq.limits",
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


def test_the_packages_list_is_the_tree() -> None:
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == sorted(PACKAGES)


def test_package_folders_are_the_trees() -> None:
    folders: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]
    for name, folder in PACKAGES.items():
        parent = name
        while parent not in folders:
            parent = parent.rpartition(".")[0]
        below = name.removeprefix(parent).replace(".", "/")
        assert (ROOT / (folders[parent] + below)).samefile(folder), f"{name} is not mapped to {folder}"


def test_package_data_lies_where_the_wheel_looks_for_it() -> None:
    for package, names in PROJECT["tool"]["setuptools"]["package-data"].items():
        for name in names:
            assert (PACKAGES[package] / name).is_file(), f"{package} has no {name}"


@pytest.mark.parametrize(("name", "folder"), ROOMS.items())
def test_root_rooms_are_linked_into_the_package(name: str, folder: str) -> None:
    link = ROOT / "shardmq" / name
    assert link.is_symlink()
    assert link.samefile(ROOT / folder)


def test_the_cmd_folder_does_not_shadow_the_standard_librarys_cmd() -> None:
    assert not (ROOT / "cmd" / "__init__.py").exists()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_rooms_not_halls(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "shardmq"])
def test_folder_guides_name_their_files(package: str) -> None:
    folder = PACKAGES[package]
    guide = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    names = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    names += [f"{path.name}/" for path in folder.iterdir() if (path / "__init__.py").exists()]
    assert [name for name in names if name not in guide] == []
    named = re.findall(r"^\s*(\w+(?:\.py|/))\s", guide, re.MULTILINE)
    assert [name for name in named if name not in names] == [], "the guide names files that are gone"


def test_every_source_file_says_what_it_is() -> None:
    silent = [str(path.relative_to(ROOT)) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_nothing_tracked_names_a_path_of_a_developers_machine() -> None:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    machine = re.compile(rb"/(?:work|home/\w+|Users/\w+|root)/|/tmp/\w*venv")
    tracked = [ROOT / name.decode() for name in listing.stdout.split(b"\0") if name]
    named = [
        str(path)
        for path in tracked
        if path.is_file() and path.name != "test_house.py" and machine.search(path.read_bytes())
    ]
    assert named == []


def test_no_source_swallows_exceptions_bare() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert bare == []
