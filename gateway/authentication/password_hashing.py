"""Passwords compared with their hashes: 50 ms and 16 MB each, on few threads, in an order that is fair.

Two threads are for those that nobody suspects; while both are free, one takes somebody who is suspected for what others
have done. One more is for all, and yields to everything else on the machine, so that who guesses gets no more than what
is left over. Known users come first; then it goes by turns among sources.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from shardmq.gateway.authentication.failed_logins import FailedLogins, Who
from shardmq.topology.passwords import hash_password, verify_password

CLEAN_THREADS: Final = 2
NICENESS: Final = 10
"""Of the thread for all (nice(2)); Linux keeps it for each thread."""

SUSPECTED: Final = 2
GUILTY: Final = 3
"""Ranks (`FailedLogins.rank`): for what others have done, and for their own failures."""

SOURCES_SERVED_MAX: Final = 1024
"""Sources whose last turn is remembered; beyond it all are forgotten."""


@dataclass(slots=True, eq=False)
class _Job:
    who: Who
    password: str
    number: int
    answer: "asyncio.Future[bool]"


class PasswordHashing:
    """Compares passwords with hashes on threads, those first that are the least suspected.

    Args:
        failed_logins: who has failed.
        stored_of: a user's hash, as it is now; "" where there is none.
        is_known: whether a user's password is right, without a look at the hash; not known where it is not.
        found: called with user, hash and password when the password was right.
    """

    def __init__(
        self,
        failed_logins: FailedLogins,
        stored_of: Callable[[str], str],
        is_known: Callable[[str, str, str], bool],
        found: Callable[[str, str, str], None],
    ) -> None:
        self._failed_logins = failed_logins
        self._stored_of = stored_of
        self._is_known = is_known
        self._found = found
        self._jobs: list[_Job] = []
        self._count = 0
        self._served: dict[str, int] = {}
        self._clean = ThreadPoolExecutor(CLEAN_THREADS, "passwords")
        self._nice = ThreadPoolExecutor(1, "suspects' passwords", initializer=_yield)
        self._clean_free = CLEAN_THREADS
        self._is_nice_free = True

    async def is_right(self, who: Who, password: str) -> bool:
        """Whether it is the user's password. Takes as long for users that do not exist."""
        self._count += 1
        job = _Job(who, password, self._count, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._go_on()
        return await job.answer

    def _go_on(self) -> None:
        """Begin what there is a thread for."""
        while self._jobs and (self._clean_free or self._is_nice_free):
            job = min(self._jobs, key=self._place)
            on_clean = self._clean_free >= self._wanted_free(job.who)
            if not self._is_nice_free and not on_clean:
                return
            self._jobs.remove(job)
            if job.answer.cancelled():
                continue
            stored = self._stored_of(job.who.user)
            if self._is_known(job.who.user, stored, job.password):  # since it began to wait
                job.answer.set_result(True)
                continue
            if len(self._served) >= SOURCES_SERVED_MAX:
                self._served.clear()
            self._count += 1
            self._served[job.who.source] = self._count
            self._begin(job, stored, on_clean)

    def _wanted_free(self, who: Who) -> int:
        """How many of the threads for those that nobody suspects have to be free for this one to get one."""
        rank = self._failed_logins.rank(who)
        if rank >= GUILTY:
            return CLEAN_THREADS + 1
        return CLEAN_THREADS if rank >= SUSPECTED else 1

    def _begin(self, job: _Job, stored: str, on_clean: bool) -> None:
        if on_clean:
            self._clean_free -= 1
        else:
            self._is_nice_free = False
        threads = self._clean if on_clean else self._nice
        compared = asyncio.get_running_loop().run_in_executor(threads, _is_password, job.password, stored)

        def end(compared: "asyncio.Future[bool]") -> None:
            if on_clean:
                self._clean_free += 1
            else:
                self._is_nice_free = True
            fault = compared.exception()
            if fault is None and compared.result():
                self._found(job.who.user, stored, job.password)
            if job.answer.cancelled():
                pass  # nobody waits for it any more
            elif fault is None:
                job.answer.set_result(compared.result())
            else:
                job.answer.set_exception(fault)
            self._go_on()

        compared.add_done_callback(end)

    def _place(self, job: _Job) -> tuple[int, int, int]:
        return self._failed_logins.rank(job.who), self._served.get(job.who.source, 0), job.number


def _is_password(password: str, stored: str) -> bool:
    """Whether it is a user's password.

    Takes as long for a user who is not known (""), or whose hash is a quick one, so that nobody learns which names
    exist.
    """
    if stored and verify_password(password, stored):
        return True
    if not stored.startswith("scrypt$"):
        hash_password(password)
    return False


def _yield() -> None:
    """Let this thread get what the others leave."""
    os.setpriority(os.PRIO_PROCESS, 0, max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
