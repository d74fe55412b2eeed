"""Exit codes."""

from typing import Final

EXIT_FAILED: Final = 1

EXIT_CONFIG: Final = 78
"""sysexits.h EX_CONFIG: starting again the same way cannot help. systemd and `shardmq up` then do not try."""

EXIT_INTERRUPTED: Final = 130
