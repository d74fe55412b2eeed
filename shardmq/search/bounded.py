"""A regular expression of a caller, tried on many texts in a bounded time."""

import time

import regex


class BoundedSearch:
    """Looks for an expression in one text after the other: one that takes long must not hold up everybody else.

    Args:
        pattern: the expression.
        seconds: what it may take with all texts together.
    """

    def __init__(self, pattern: "regex.Pattern[str]", seconds: float) -> None:
        self._pattern = pattern
        self._seconds_left = seconds

    def finds(self, text: str) -> bool:
        """Whether it is found in a text.

        Raises:
            TimeoutError: it has taken too long.
        """
        begun = time.perf_counter()
        found = self._pattern.search(text, timeout=self._seconds_left)
        self._seconds_left -= time.perf_counter() - begun
        if self._seconds_left <= 0:
            raise TimeoutError
        return found is not None
