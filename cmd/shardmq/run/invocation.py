"""Starting commands of shardmq as processes, and the name under which people start them."""

import atexit
import contextlib
import gc
import importlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NoReturn, Protocol

import setproctitle

FORKED: Final = {
    "coordinator": ("shardmq.cmd.run.processes", "shardmq.coordinator.process"),
    "shard": ("shardmq.cmd.run.processes", "shardmq.shards.process"),
    "gateway": ("shardmq.cmd.run.processes", "shardmq.gateway.process"),
}
"""Commands without which a broker is not up, and the modules whose import takes them long."""

PROCESS_NAME: Final = "shardmq"
"""Of the processes of a broker, as `top` shows it."""

_HANDLED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGINT)


class Process(Protocol):
    """A process that was started here, and must be waited for."""

    pid: int

    def wait(self) -> int:
        """Wait for its end; returns its exit code, or the negative number of the signal that killed it."""
        ...

    def send_signal(self, number: int, /) -> None:
        """Send it a signal."""
        ...


class Forked:
    """A process that was forked here; see `Process`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        """Wait for its end."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def send_signal(self, number: int, /) -> None:
        """Send it a signal; the caller has not waited for its end."""
        os.kill(self.pid, number)


def command(*arguments: str) -> list[str]:
    """The command line of `shardmq arguments…`, run by this interpreter.

    -P keeps the working directory off the import path: a user's `queue.py` lying there must not end up in a broker.
    """
    return [sys.executable, "-P", "-m", "shardmq.cmd.main", *arguments]


def environment(**more: str) -> dict[str, str]:
    """This process's environment, with its import path, so that the child runs the code that runs here."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **more}


def spawn(
    arguments: tuple[str, ...], variables: Mapping[str, str], stdout: int, stderr: int | None = None
) -> "subprocess.Popen[bytes]":
    """Start `shardmq arguments…` as a process of its own, in a process group of its own.

    Ctrl-C goes to the terminal's whole group; the order in which a broker's processes stop is ours.

    Args:
        arguments: of the command.
        variables: added to this process's environment.
        stdout: a file descriptor, or subprocess.PIPE.
        stderr: a file descriptor; None for ours.
    """
    return subprocess.Popen(
        command(*arguments),
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        process_group=0,
    )


def start(arguments: tuple[str, ...], variables: Mapping[str, str]) -> Process:
    """Start `shardmq arguments…` as one of the processes of a broker, which writes to our stderr alone.

    A process of FORKED is a fork of this one, which imports its modules once; any other is spawned. Where this process
    has a second thread, as one that looks up the name of a member of etcd, all are spawned: a lock that the thread
    holds would stay locked in a fork.
    """
    modules = FORKED.get(arguments[0])
    if modules is None or threading.active_count() > 1:
        return spawn(arguments, variables, stdout=2)  # our own stdout is for notices
    for module in modules:
        importlib.import_module(module)
    from shardmq.cmd.main import run

    def work() -> int:
        sys.argv[1:] = arguments
        return run(arguments)

    return fork(work, command(*arguments), environment(**variables), 2, 2)


def fork(work: Callable[[], int], title: list[str], variables: Mapping[str, str], stdout: int, stderr: int) -> Forked:
    """Do work in a fork of this process, in a process group of its own as by `spawn`. There is one thread here.

    Args:
        work: returns the exit code.
        title: the command line that others see.
        variables: the whole environment.
        stdout: a file descriptor.
        stderr: a file descriptor.
    """
    setproctitle.getproctitle()  # it finds the place of the title by the environment, which is another one in the fork
    setproctitle.setthreadtitle(PROCESS_NAME)
    sys.stdout.flush()
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)  # one for the fork is none for the handlers it has from here
    pid = os.fork()
    if not pid:
        _become(work, title, variables, stdout, stderr)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
    return Forked(pid)


def _become(
    work: Callable[[], int], title: list[str], variables: Mapping[str, str], stdout: int, stderr: int
) -> NoReturn:
    """Do the work of a fork and end; nothing of what called `fork` goes on in it."""
    code = 1
    try:
        _let_go(stdout, stderr)
        os.environ.clear()
        os.environ.update(variables)
        setproctitle.setproctitle(" ".join(title))
        setproctitle.setthreadtitle(PROCESS_NAME)  # it was the beginning of the title
        code = work()
        threading._shutdown()  # type: ignore[attr-defined]  # it and the next are what the interpreter does at its end
        atexit._run_exitfuncs()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            code = end.code or 0
        else:
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _let_go(stdout: int, stderr: int) -> None:
    """Keep nothing of the parent's but its code: no handler, no descriptor."""
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for number in _HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # forgets one that has come for the parent's group, in which we were
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.freeze()  # what lies around from the parent closes nothing here
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.closerange(3, 1 << 30)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)


def program() -> str:
    """What people type for `shardmq` where this process was started: its path, unless the shell finds it by name."""
    path = Path(sys.argv[0])
    found = shutil.which("shardmq")
    if path.name != "shardmq" or (found is not None and path.exists() and path.samefile(found)):
        return "shardmq"
    return shlex.quote(str(path))
