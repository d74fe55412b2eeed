"""The zip that executors need where shardmq is not installed: plain Python, which `addPyFile` and --py-files take."""

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
"""Of shardmq, beside `shardmq.spark`; all of it needs the standard library alone (a test looks)."""

JOBS: Final = "jobs"
"""The folder of `shardmq.spark` that runs on drivers alone, with a terminal."""

DISCOVERY: Final = "pyspark_shardmq"
"""A package beside shardmq in the zip, as where it is installed; a folder of `shardmq.spark` in the source tree."""

_DAY: Final = (2026, 1, 1, 0, 0, 0)


def make_zip(path: str | Path) -> Path:
    """Write the zip.

    Args:
        path: where to; what is there is replaced.

    Returns:
        It.

    Raises:
        StartupRefused: a file of shardmq or msgpack is not where it was installed.
    """
    target = Path(path)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, source in sorted(_contents().items()):
            # Of the same day each time: Spark takes the same file twice, but not another of its name.
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
    # msgpack's compiled part is of this machine; without it the package falls back to Python by itself.
    found |= {f"msgpack/{path.name}": path for path in Path(msgpack.__file__).parent.glob("*.py")}
    try:
        return {name: path.read_text(encoding="utf-8") for name, path in found.items()}
    except OSError as fault:
        raise StartupRefused(f"the zip for executors cannot be made: {fault}") from fault
