"""Seconds and sizes of the protocol between replicas, each beside its reason."""

from typing import Final

BEAT_SECONDS: Final = 0.25
"""Between two beats of a primary: four fit into a lease, so that one may be late."""

LEASE_SECONDS: Final = 1.0
"""How long a primary answers after it sent the last beat that all of the in-sync set answered."""

SILENT_SECONDS: Final = 1.0
"""After this time without an answer a follower is evicted from the in-sync set. One that freezes for 0.5 s stays."""

STUCK_SECONDS: Final = 2.0
"""After this time without a release, whoever holds it up is evicted, though it answers beats: its process may end with
each commit, and start again."""

CAMPAIGN_SECONDS: Final = 1.5
"""After this time without a beat a follower campaigns. Clocks may differ in rate by a tenth: 1.5 / 1.1 > 1.0 / 0.9."""

CAMPAIGN_JITTER: Final = 0.3
"""Followers campaign up to this fraction later, each by another, so that two seldom do at once."""

STALL_SECONDS: Final = 0.5
"""With a commit under way for this long, a replica neither sends nor answers beats: its disk takes nothing."""

HELLO_SECONDS: Final = 0.5
"""Between two attempts of a follower to be brought up to date."""

READ_SECONDS: Final = 0.25
"""Between two attempts to read the group's key."""

TRANSFER_SECONDS: Final = 1.0
"""How long a transfer may hold back publishes before it is given up."""

TOUCHED_RECORDS_MAX: Final = 10_000
"""Records whose keys are kept in memory: with them a follower that was away briefly need not join again."""

REJOIN_KEYS_MAX: Final = 100_000
"""Keys of one rejoin, which is a single commit. More make it a join."""

RANGE_BYTES: Final = 1 << 20
"""About how much of the store one step of a join sends: large against a round trip, small against a pass."""

REST_SHARE: Final = 4.0
"""How long a join rests after each step where somebody publishes meanwhile, as a share of what the step took: both use
the same processors and disks."""

REST_SECONDS_MAX: Final = 1.0
"""After a step that took long, as its follower was frozen."""

HISTORY_MAX: Final = 64
"""Terms of the history in the note. A replica that was away for more joins again."""
