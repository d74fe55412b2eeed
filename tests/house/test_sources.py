"""What every file of the sources keeps to: sizes, names and what must not be in it."""

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.house.tree import MODULES, ROOT, SOURCES, nodes, parsed

LINES_MAX = 400
FOLDER_MODULES_MAX = 13


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES.values()}), ids=lambda path: path.name)
def test_folders_are_rooms_not_warehouses(folder: Path) -> None:
    assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= FOLDER_MODULES_MAX


def test_files_are_rooms_not_halls() -> None:
    long = {str(path.relative_to(ROOT)) for path in SOURCES if len(path.read_text().splitlines()) > LINES_MAX}
    assert long == set()


def test_every_source_file_says_what_it_is() -> None:
    silent = [str(path.relative_to(ROOT)) for path in SOURCES if not ast.get_docstring(parsed(path))]
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
        if path.is_file() and path.name != "test_sources.py" and machine.search(path.read_bytes())
    ]
    assert named == []
    links = [str(path) for path in tracked if path.is_symlink()]
    assert [link for link in links if os.readlink(link).startswith("/")] == [], "a link leads into this tree"


def test_nothing_is_kept_from_the_formatter() -> None:
    spared = re.compile(r"#\s*fmt:\s*(?:skip|off)")
    assert [str(path.relative_to(ROOT)) for path in SOURCES if spared.search(path.read_text())] == []


def test_docstrings_stand_by_themselves() -> None:
    leaning = re.compile(r'"""(?:As `|See (?:the|its) (?:module|class)\b)|^\s+As `[\w.]+`\.$', re.MULTILINE)
    assert [str(path.relative_to(ROOT)) for path in SOURCES if leaning.search(path.read_text())] == []


def test_no_comment_is_a_heading() -> None:
    heading = re.compile(r"^\s*# ?-{3}", re.MULTILINE)
    assert [str(path.relative_to(ROOT)) for path in SOURCES if heading.search(path.read_text())] == []


def test_no_source_swallows_exceptions_bare() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert bare == []


FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 6
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
RABBITMQS_VERBS = frozenset(
    {
        *("basic_consume", "connect", "consume", "consume_batches", "consume_from", "exchange_declare"),
        *("publish", "publish_many", "queue_declare"),
    }
)
"""Public functions with as many parameters as RabbitMQ's method or command of that name has fields."""


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in nodes(path) if isinstance(node, FUNCTIONS)]


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether click hands it one parameter for each option that the command has."""
    return any("click.command" in name or ".command(" in name for name in map(ast.unparse, function.decorator_list))


def test_functions_fit_a_screen() -> None:
    long = {
        f"{path.relative_to(ROOT)} {function.name}"
        for path in MODULES.values()
        for function in functions(path)
        if (function.end_lineno or 0) - function.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert long == set()


def test_public_functions_take_few_parameters() -> None:
    greedy = set()
    for path in MODULES.values():
        for function in functions(path):
            if function.name.startswith("_") or function.name in RABBITMQS_VERBS or is_command(function):
                continue
            names = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            if len([name for name in names if name.arg not in ("self", "cls")]) > PARAMETERS_MAX:
                greedy.add(f"{path.relative_to(ROOT)} {function.name}")
    assert greedy == set()


MUTATING = frozenset(
    {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}
)


def assigned_names(node: ast.stmt) -> list[str]:
    """The names that a statement gives a value."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def mutated_globals(path: Path) -> set[str]:
    """Names of a module that its functions change after the import: assigned by `global`, or a container written to."""
    tree = parsed(path)
    names = {name for node in tree.body for name in assigned_names(node)}
    changed = set()
    for function in functions(path):
        own = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
        own |= {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                changed.update(node.names)
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
                changed |= {node.value.id} - own if isinstance(node.value, ast.Name) else set()
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING:
                changed |= {node.func.value.id} - own if isinstance(node.func.value, ast.Name) else set()
    return changed & names


def test_modules_keep_no_state() -> None:
    """State in a module is shared by the whole process: a docstring below the name says why."""
    silent = set()
    for path in MODULES.values():
        tree = parsed(path)
        for name in mutated_globals(path):
            index = next(place for place, node in enumerate(tree.body) if name in assigned_names(node))
            reason = tree.body[index + 1 : index + 2]
            if not (reason and isinstance(reason[0], ast.Expr) and isinstance(reason[0].value, ast.Constant)):
                silent.add(f"{path.relative_to(ROOT)} {name}")
    assert silent == set()
