"""Where to read from, in the broker's words."""

from datetime import UTC, datetime, timedelta

import pytest

from shardmq.client.api.topics import place_of
from shardmq.errors import InvalidRequest

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
NOON_MS = 1_795_435_200_000


@pytest.mark.parametrize("microseconds", [0, 1, 500, 999])
def test_a_time_is_never_past_a_message_of_that_millisecond(microseconds: int) -> None:
    for milliseconds in (0, 1, 122, 123, 999):
        start = NOON + timedelta(milliseconds=milliseconds, microseconds=microseconds)
        assert place_of(start) == ("time", NOON_MS + milliseconds)


def test_an_unknown_word_is_refused_with_those_there_are() -> None:
    assert [place_of(word) for word in ("earliest", "latest", 7)] == [("first", 0), ("next", 0), ("offset", 7)]
    with pytest.raises(InvalidRequest, match="'earliest' or 'latest', not from 'soon'"):
        place_of("soon")
