"""Exit codes."""

from typing import Final

EXIT_FAILED: Final = 1

EXIT_CONFIG: Final = 78
"""sysexits.h EX_CONFIG: starting again the same way cannot help. systemd and `shardmq up` then do not try."""

EXIT_INTERRUPTED: Final = 130

EXIT_PIPE: Final = 141
"""What shells report of a program that SIGPIPE ended: whoever read its output is gone."""
