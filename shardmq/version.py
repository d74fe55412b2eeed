"""The version, in the one place the code asks for it (a test holds it to pyproject.toml)."""

from typing import Final

VERSION: Final = "0.1.0"
