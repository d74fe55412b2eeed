"""The way of a message: exchanges, exchange-to-exchange bindings, alternate exchanges, and a cache of routes."""

from typing import Final

ALTERNATE: Final = "alternate-exchange"
"""The argument that names the exchange for what an exchange's bindings lead nowhere."""

ROUTES_MAX: Final = 32_768
"""Routes remembered, each counted once and once more for every queue in it. With the longest keys that is about 16 MB;
a working set of keys that is larger pays for finding its routes again, some microseconds each."""
