"""The log of a process: lines with a time and a level, as text or as JSON, on stderr."""

import json
import logging
import time
from dataclasses import dataclass
from typing import Final

LOGGER: Final = "shardmq"
"""Name of the logger above all of ours."""

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a process logs.

    Attributes:
        level: the least that is logged, one of LEVELS.
        format: one of FORMATS.
    """

    level: str = "info"
    format: str = "text"

    @property
    def words(self) -> tuple[str, ...]:
        """The same on another process's command line."""
        return "--log-level", self.level, "--log-format", self.format

    def begin(self, process: str) -> None:
        """Log this process's lines to stderr from now on, under the name of the process."""
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter(process) if self.format == "json" else TextFormatter(process))
        for name in (LOGGER, "asyncio"):
            logger = logging.getLogger(name)
            logger.handlers = [handler]
            logger.setLevel(self.level.upper())
            logger.propagate = False


DEFAULT_LOG: Final = LogOptions()


class TextFormatter(logging.Formatter):
    """A line for people: date, time, level, process, text."""

    def __init__(self, process: str) -> None:
        escaped = process.replace("%", "%%")
        super().__init__(f"%(asctime)s.%(msecs)03d %(levelname)-7s {escaped}: %(message)s", "%Y-%m-%d %H:%M:%S")


class JsonFormatter(logging.Formatter):
    """A line for machines: one JSON object with `time` (UTC), `level`, `process` and `text`."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": timestamp(record.created),
            "level": record.levelname.lower(),
            "process": self._process,
            "text": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def timestamp(seconds: float) -> str:
    """Seconds since 1970 as ISO 8601 in UTC, with milliseconds: "2026-01-31T12:00:00.123Z"."""
    milliseconds = int(seconds * 1000) % 1000
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{milliseconds:03d}Z", time.gmtime(seconds))
