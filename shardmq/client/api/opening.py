"""What is awaited, or entered with `async with`: a connection, channel or transaction on its way."""

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar


class _Entered(Protocol):
    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


T = TypeVar("T", bound=_Entered)


class Opening(Coroutine[Any, Any, T]):
    """The call that opens something: `await` it, or enter it with `async with`, which closes it at the end.

    Args:
        opens: the coroutine that opens it.
    """

    __slots__ = ("_opened", "_opens")

    def __init__(self, opens: Coroutine[Any, Any, T]) -> None:
        self._opens = opens
        self._opened: T

    def __await__(self) -> Generator[Any, Any, T]:
        return self._opens.__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._opens
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, traceback)

    def send(self, value: Any, /) -> Any:
        """Run it up to where it waits, as coroutines do."""
        return self._opens.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None, /) -> Any:
        """Raise in it, as coroutines do."""
        return self._opens.throw(kind, value, traceback) if value is not None else self._opens.throw(kind)

    def close(self) -> None:
        """End it, as coroutines do."""
        self._opens.close()
