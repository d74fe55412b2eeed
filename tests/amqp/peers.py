"""Fetches clients that are no Python packages, and what Python's ship beside theirs, for the tests.

    python peers.py FOLDER [STAMP]

Into FOLDER come `debian/` (clients in C and Java, the machine-readable specification), `sdists/` (source distributions
of py-amqp and kombu as installed, with their own integration tests), `node/` (amqplib, and axe-core for the page),
`management/` (rabbitmqadmin), `nagios/` (its checks of RabbitMQ), `managers/` (clients of the HTTP API in Python),
`browser/` (Chromium and its driver, where the machine has none) and `servers/` (etcd, Redis, RabbitMQ and programs that
tests run, where the machine has them not all; `servers/programs` is for the PATH). Nothing needs root. What cannot be
had here is said, and its tests are skipped; where SHARDMQ_PEERS is "required" it is an error. STAMP is touched when all
is there.
Without STAMP it fetches what can come before Python's clients are installed, and leaves the rest to a later run.
"""

import contextlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

DEBIAN: Final = (
    *("amqp-tools", "librabbitmq4", "libpopt0"),  # C
    *("librabbitmq-client-java", "libslf4j-java"),  # Java
    "amqp-specs",
)
SDISTS: Final = ("amqp", "kombu")
NODE: Final = ("amqplib@2", "axe-core@4")
BROWSER: Final = ("chromium", "chromium-driver")
MANAGEMENT: Final = ("rabbitmq-server",)  # for rabbitmqadmin, its script
NAGIOS: Final = (
    *("nagios-plugins-rabbitmq", "libmonitoring-plugin-perl", "libclass-accessor-perl", "libconfig-tiny-perl"),
    *("libmath-calc-units-perl", "libparams-validate-perl", "libmodule-implementation-perl"),
    *("libmodule-runtime-perl", "libtry-tiny-perl", "libreadonly-perl", "libjson-perl", "libwww-perl", "liburi-perl"),
)
MANAGERS: Final = (
    "amqpstorm>=3.1",
    *("pyrabbit>=1.1", "httplib2>=0.22", "pyparsing>=3"),
    "pyrabbit2>=1.0.7",
    "flower>=2",
    "tornado>=6.4",
    "humanize>=4",
    "requests>=2.32",
)
"""Python's clients of the HTTP API, beside the tests' own packages as their dependencies are others'."""
SERVERS: Final = (
    *("etcd-server", "etcd-client", "redis-server", "redis-tools"),
    *("rabbitmq-server", "erlang-base"),
    *("librabbitmq-dev", "librabbitmq4"),  # a C program is compiled with these
    *("iproute2", "nftables"),  # hosts in network namespaces
    *("strace", "systemd"),  # what a process writes; systemd-analyze checks units
)
SERVED: Final = {
    "etcd": "usr/bin/etcd",
    "etcdctl": "usr/bin/etcdctl",
    "redis-server": "usr/bin/redis-server",
    "rabbitmq-server": "usr/lib/rabbitmq/bin/rabbitmq-server",
    "erl": "usr/bin/erl",
    "epmd": "usr/bin/epmd",
    "ip": "bin/ip",
    "bridge": "sbin/bridge",
    "nft": "usr/sbin/nft",
    "strace": "usr/bin/strace",
    "systemd-analyze": "usr/bin/systemd-analyze",
}
"""Programs of these packages, and where they are in them; a machine has all or gets all."""

SECONDS_MAX: Final = 300
"""For one command: they load a few megabytes, a browser 150."""


class CannotFetch(Exception):
    """Peers that cannot be had here, and why."""


def run(*command: str, cwd: Path | None = None) -> str:
    """Run a command silently; returns what it wrote to stdout.

    Raises:
        CannotFetch: it is not there, or failed; the text has what it said last.
    """
    if shutil.which(command[0]) is None:
        raise CannotFetch(f"{Path(command[0]).name} is not installed")
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise CannotFetch(f"{Path(command[0]).name} took more than {SECONDS_MAX} s") from None
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise CannotFetch(f"`{' '.join(command)}` failed: {said}")
    return done.stdout


def fetch_debian(folder: Path, packages: list[str], with_missing: bool = False) -> None:
    """Packages, unpacked; with package lists of our own where the machine's are missing or stale.

    Args:
        folder: for their files.
        packages: their names.
        with_missing: whether those that they need and the machine lacks come, too.
    """
    archives, lists = folder.with_name("archives"), folder.with_name("lists")
    for place in (archives, lists / "partial"):
        place.mkdir(parents=True, exist_ok=True)
    apt = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root"]  # when root: or apt's user may not write here

    def download() -> None:
        wanted = [*packages, *lacked(apt, packages)] if with_missing else packages
        run(*apt, "download", *wanted, cwd=archives)

    try:
        download()
    except CannotFetch:
        apt += ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={lists}"]
        run(*apt, "update")
        download()
    for archive in sorted(archives.glob("*.deb")):
        run("dpkg-deb", "--extract", str(archive), str(folder))
    for place in (archives, lists):
        shutil.rmtree(place)


def lacked(apt: list[str], packages: list[str]) -> list[str]:
    """What the machine would have to install beside these packages."""
    said = run(*apt, "--simulate", "--no-install-recommends", "install", *packages)
    found = [line.split()[1] for line in said.splitlines() if line.startswith("Inst ")]
    return [name for name in found if name not in packages]


def fetch_nagios(folder: Path, packages: list[str]) -> None:
    """Checks in Perl, with the modules that the machine lacks."""
    fetch_debian(folder, packages, with_missing=True)


def fetch_browser(folder: Path, packages: list[str]) -> None:
    """A browser and its driver, with the libraries that the machine lacks; nothing where it has them."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        fetch_debian(folder, packages, with_missing=True)


def fetch_servers(folder: Path, packages: list[str]) -> None:
    """Servers and what tests run beside them, in `programs`; nothing where the machine has them all."""
    if all(shutil.which(name) for name in SERVED) and any(Path("/usr/include").glob("**/amqp.h")):
        return
    fetch_debian(folder, packages, with_missing=True)
    erlang = folder / "usr/lib/erlang"
    script = erlang / "bin/erl"
    script.write_text(script.read_text().replace("ROOTDIR=/usr/lib/erlang\n", f"ROOTDIR={erlang}\n"))
    libraries = ":".join(sorted({str(path.parent) for path in folder.glob("usr/lib/*-linux-gnu/**/*.so*")}))
    programs = folder / "programs"
    programs.mkdir()
    for name, place in SERVED.items():
        wrapper = programs / name
        wrapper.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {folder / place} "$@"\n')
        wrapper.chmod(0o755)


def fetch_sdists(folder: Path, versions: list[str]) -> None:
    """Source distributions, unpacked."""
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps")
    # Without isolation: pip only asks for their metadata, which needs no more than the setuptools that is here.
    run(*pip, "--no-build-isolation", "--no-binary", ",".join(SDISTS), "--dest", str(folder), *versions)
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as tar:
            tar.extraction_filter = getattr(tarfile, "data_filter", None)  # before 3.11.4 there is none
            tar.extractall(folder)
        archive.unlink()


def fetch_node(folder: Path, packages: list[str]) -> None:
    """Packages of npm."""
    npm = ("npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--no-update-notifier", "--silent")
    run(*npm, *packages)


def fetch_python(folder: Path, packages: list[str]) -> None:
    """Python packages, to be put on the path of those tests that use them."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    more = ("urllib3", "certifi", "charset-normalizer")  # of requests
    run(*pip, "--no-deps", "--target", str(folder), *packages, *more)


def installed(name: str) -> str:
    """A Python package as pip names its version."""
    return f"{name}=={importlib.metadata.version(name)}"


Fetch = Callable[[Path, list[str]], None]
PEERS: Final[dict[str, tuple[Fetch, list[str]]]] = {
    "debian": (fetch_debian, [*DEBIAN]),
    "sdists": (fetch_sdists, [*SDISTS]),
    "node": (fetch_node, [*NODE]),
    "management": (fetch_debian, [*MANAGEMENT]),
    "nagios": (fetch_nagios, [*NAGIOS]),
    "managers": (fetch_python, [*MANAGERS]),
    "browser": (fetch_browser, [*BROWSER]),
    "servers": (fetch_servers, [*SERVERS]),
}
"""What fetches each folder, and what is to be in it; of `sdists` in the versions that are installed."""

HOLDS: Final = "holds.txt"
"""Beside what a folder holds: the names it was fetched by. It is the last to come, so the folder is whole."""


def fetch(folder: Path, name: str) -> None:
    """Fetch one folder, unless it has what it is to have."""
    fetch_it, wanted = PEERS[name]
    if name == "sdists":
        wanted = [installed(each) for each in wanted]
    holds, names = folder / name / HOLDS, "".join([f"{each}\n" for each in wanted])
    if holds.exists() and holds.read_text() == names:
        return
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).mkdir(parents=True)
    fetch_it(folder / name, wanted)
    holds.write_text(names)


def fetch_early(folder: Path) -> None:
    """Fetch what needs no package of the tests; what cannot be had is tried again, and said, when all are fetched."""
    for name in PEERS:
        if name != "sdists":
            with contextlib.suppress(CannotFetch):
                fetch(folder, name)


def main(folder: Path, stamp: Path) -> str | None:
    """Fetch all; returns what to say where one is missing that must be there."""
    missing = []
    for name in PEERS:
        try:
            fetch(folder, name)
        except CannotFetch as reason:
            missing.append(f"no {name} clients to test with: {reason}")
    if not missing:
        stamp.touch()
        return None
    if os.environ.get("SHARDMQ_PEERS") == "required":
        return "\n".join(missing)
    print(*missing, "their tests will be skipped", sep="\n")
    return None


if __name__ == "__main__":
    place = Path(sys.argv[1]).absolute()
    sys.exit(main(place, Path(sys.argv[2])) if len(sys.argv) > 2 else fetch_early(place))
