"""Topic matching against the definition, and the shape of the trie."""

import time
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.errors import InvalidRequest
from shardmq.topology.exchanges.topic import Topic

WORDS = st.sampled_from(["a", "b", "", "*", "#"])
PATTERNS = st.lists(WORDS, max_size=7).map(".".join)
ROUTING_KEYS = st.lists(st.sampled_from(["a", "b", "c", "", "*", "#"]), max_size=7).map(".".join)


def words(key: str) -> tuple[str, ...]:
    return tuple(key.split(".")) if key else ()


@cache
def means(pattern: tuple[str, ...], key: tuple[str, ...]) -> bool:
    """The definition, word by word."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return means(pattern[1:], key) or (bool(key) and means(pattern, key[1:]))
    return bool(key) and pattern[0] in ("*", key[0]) and means(pattern[1:], key[1:])


@given(st.lists(PATTERNS, min_size=1, max_size=8), st.lists(ROUTING_KEYS, min_size=1, max_size=8))
def test_matches_what_the_definition_says(patterns: list[str], keys: list[str]) -> None:
    topic = Topic()
    for queue, pattern in enumerate(patterns):
        topic.add(pattern, queue, {})
    for key in keys:
        expected = {queue for queue, pattern in enumerate(patterns) if means(words(pattern), words(key))}
        assert set(topic.match(key)) == expected


@given(st.lists(st.tuples(PATTERNS, st.integers(0, 3)), max_size=12), st.randoms(use_true_random=False), ROUTING_KEYS)
def test_what_was_removed_is_as_if_never_added(bindings: list[tuple[str, int]], random: object, key: str) -> None:
    topic, left = Topic(), Topic()
    removed = [binding for place, binding in enumerate(bindings) if place % 2]
    for pattern, queue in bindings:
        topic.add(pattern, queue, {})
    for place, (pattern, queue) in enumerate(bindings):
        if not place % 2:
            left.add(pattern, queue, {})
    random.shuffle(removed)  # type: ignore[attr-defined]
    for pattern, queue in removed:
        topic.remove(pattern, queue, {})
    assert set(topic.match(key)) == set(left.match(key))
    assert topic.is_empty == left.is_empty


@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        ("#", "", True),
        ("*", "", False),
        ("", "", True),
        ("a.*.b", "a..b", True),
        ("a.#", "a", True),
        ("#.#", "", True),
        ("#.*.#", "", False),
        ("#.*.#", "a", True),
        ("*.#.*", "a", False),
        ("*.#.*", "a.b", True),
        ("a.*b", "a.*b", True),
        ("a.*b", "a.xb", False),
        ("*", ".", False),
        ("*.*", ".", True),
    ],
)
def test_matches_as_rabbitmq_does(pattern: str, key: str, matches: bool) -> None:
    topic = Topic()
    topic.add(pattern, 1, {})
    assert bool(topic.match(key)) is matches


def test_many_hashes_do_not_explode() -> None:
    topic = Topic()
    topic.add(".".join(["#", "a"] * 60 + ["#", "z"]), 1, {})
    started = time.process_time()
    assert not topic.match(".".join(["a"] * 120))
    assert time.process_time() - started < 1


def test_the_last_removal_leaves_an_empty_trie() -> None:
    topic = Topic()
    for pattern in ("a.*.#.b", "a.*", "#", ""):
        topic.add(pattern, 7, {})
    for pattern in ("a.*", "", "#", "a.*.#.b"):
        assert not topic.is_empty
        topic.remove(pattern, 7, {})
    assert topic.is_empty
    with pytest.raises(KeyError):
        topic.remove("a.*", 7, {})


@pytest.mark.parametrize("key", ["a.*b", "a#", "##", "x.**.y"])
def test_wildcards_inside_words_are_refused(key: str) -> None:
    with pytest.raises(InvalidRequest, match="must be whole words"):
        Topic.check_binding_key(key)


@pytest.mark.parametrize("key", ["", "*", "#", "a.*.b", "#.#", "a..b"])
def test_whole_word_wildcards_are_taken(key: str) -> None:
    Topic.check_binding_key(key)
