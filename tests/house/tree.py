"""The tree as tests see it: packages, modules, and what each module imports."""

import ast
import functools
import gc
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

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
PROCESSES = {"shardmq.shards", "shardmq.gateway", "shardmq.coordinator", "shardmq.management", "shardmq.shovels"}
SOURCES = sorted({*MODULES.values(), *(ROOT / "tests").rglob("*.py")})


@functools.cache
def trees(tests: bool) -> dict[Path, tuple[ast.AST, ...]]:
    """All nodes of the syntax trees of the tests' files, or of all others.

    They are over a million, and stay: were each of them looked at whenever Python looks for garbage, that would take
    twice as long as to parse the files.
    """
    gc.collect()
    gc.disable()
    try:
        paths = [path for path in SOURCES if path.is_relative_to(ROOT / "tests") == tests]
        return {path: tuple(ast.walk(ast.parse(path.read_text(), str(path)))) for path in paths}
    finally:
        gc.freeze()
        gc.enable()


def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's syntax tree, which nobody changes."""
    return trees(path.is_relative_to(ROOT / "tests"))[path]


def parsed(path: Path) -> ast.Module:
    """A file's syntax tree, which nobody changes."""
    module = nodes(path)[0]
    assert isinstance(module, ast.Module)
    return module


@functools.cache
def imports(module: str) -> tuple[str, ...]:
    """Full names of all a module imports, anywhere in it."""
    return tuple(found_imports(module))


def found_imports(module: str) -> Iterator[str]:
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes(path):
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


def arrows(module: str) -> set[str]:
    """The modules that a module imports."""
    found = {name if name in MODULES else name.rpartition(".")[0] for name in imports(module)}
    return {name for name in found if name in MODULES and not is_in(module, name) and name != "shardmq"}
