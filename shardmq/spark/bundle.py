"""The zip that executors need where shardmq is not installed. It is plain Python, for `addPyFile` and --py-files."""

import zipfile
from pathlib import Path
from typing import Final

import msgpack

import shardmq
from shardmq.errors import StartupRefused

MODULES: Final = (
    "__init__.py",
    "errors.py",
    "limits.py",
    "urls.py",
    "version.py",
    "client/__init__.py",
    "client/api/__init__.py",
    "client/api/defaults.py",
    "client/api/tls.py",
    "client/api/url.py",
    "client/sync/__init__.py",
    "client/sync/sockets.py",
    "protocol/__init__.py",
    "protocol/native/__init__.py",
    "protocol/native/frames.py",
)
"""Modules of shardmq besides `shardmq.spark`. They need the standard library alone (a test checks)."""

JOBS: Final = "jobs"
"""The folder of `shardmq.spark` that runs on drivers alone."""

DISCOVERY: Final = "pyspark_shardmq"
"""A top-level package in the zip and where shardmq is installed; a folder of `shardmq.spark` in the source tree."""

_DAY: Final = (2026, 1, 1, 0, 0, 0)


def make_zip(path: str | Path) -> Path:
    """Write the zip.

    Args:
        path: the file to write; an existing one is replaced.

    Returns:
        The path.

    Raises:
        StartupRefused: a file of shardmq or msgpack is not where it was installed.
    """
    target = Path(path)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, source in sorted(_contents().items()):
            # Always the same day: Spark takes the same file twice, but no other file of its name.
            bundle.writestr(zipfile.ZipInfo(name, _DAY), source, zipfile.ZIP_DEFLATED)
    return target


def _contents() -> dict[str, str]:
    home = Path(shardmq.__file__).parent
    found = {f"shardmq/{name}": home / name for name in MODULES}
    for path in (home / "spark").rglob("*.py"):
        inner = path.relative_to(home)
        if inner.parts[1] not in (JOBS, DISCOVERY):
            found[f"shardmq/{inner.as_posix()}"] = path
    homes = (home / "spark" / DISCOVERY, home.parent / DISCOVERY)
    found |= {f"{DISCOVERY}/{path.name}": path for folder in homes for path in folder.glob("*.py")}
    # msgpack's compiled part is for this machine; without it the package uses its Python part.
    found |= {f"msgpack/{path.name}": path for path in Path(msgpack.__file__).parent.glob("*.py")}
    try:
        return {name: path.read_text(encoding="utf-8") for name, path in found.items()}
    except OSError as fault:
        raise StartupRefused(f"the zip for executors cannot be made: {fault}") from fault
