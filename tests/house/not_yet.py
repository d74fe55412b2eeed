"""Where the house rules are broken still. Every list only gets shorter; a rule that nobody breaks has an empty one."""

UPWARD_IMPORTS: set[str] = set()
CIRCLES: dict[str, int] = {}
WITHOUT_TWIN: set[str] = set()
LONG_FILES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()
MANY_PARAMETERS: set[str] = set()
MODULE_STATE: set[str] = set()
