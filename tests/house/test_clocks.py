"""Which clocks replicas read: leases and silences go on while a machine is suspended, as the others' do."""

import ast
from collections import Counter

from tests.house.tree import MODULES, is_in

CLOCKS = frozenset(
    f"{name}{unit}" for name in ("monotonic", "perf_counter", "process_time", "time") for unit in ("", "_ns")
) | {"clock_gettime", "clock_gettime_ns", "localtime", "gmtime"}

OTHERS = {
    "node.node ReplicaNode.__init__ time": 1,
    "node.node ReplicaNode.__init__ time_ns": 1,
    "node.node ReplicaNode.wait_seconds monotonic": 1,
    "node.node ReplicaNode._tick_links monotonic": 1,
    "node.node ReplicaNode._rest monotonic": 2,
    "member GroupMember.follow monotonic": 1,
    "member GroupMember.end_term monotonic": 1,
    "member GroupMember.settle monotonic": 2,
    "links.peers PeerLinks._call monotonic": 1,
    "links.peers PeerLinks._complain monotonic": 1,
    "directory PrimaryDirectory.wait_for_broker monotonic": 1,
}
"""Where a clock other than `boottime` is read, and how often. No other host relies on any of it: the time of day when a
group begins, the number of a process, calls of sockets, housekeeping, signs of life, patience at a start or stop."""

TREES = {
    module: ast.parse(path.read_text()) for module, path in MODULES.items() if is_in(module, "shardmq.replication")
}
"""Of these few files alone: all of the tree takes long to parse."""


def readings(module: str) -> Counter[str]:
    """How often each function of a module names one of Python's clocks."""
    found: Counter[str] = Counter()
    room = module.removeprefix("shardmq.replication.")

    def look(node: ast.AST, place: tuple[str, ...]) -> None:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            place = (*place, node.name)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "time" and node.attr in CLOCKS:
            found[f"{room} {'.'.join(place)} {node.attr}"] += 1
        for child in ast.iter_child_nodes(node):
            look(child, place)

    look(TREES[module], ())
    return found


def test_what_replicas_promise_each_other_is_timed_by_boottime_alone() -> None:
    assert sum([readings(module) for module in TREES], Counter[str]()) == OTHERS


def test_no_clock_is_known_by_another_name() -> None:
    renamed = [
        f"{module} {name.name}"
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in node.names
        if (isinstance(node, ast.ImportFrom) and node.module == "time") or (name.name == "time" and name.asname)
    ]
    assert renamed == []
