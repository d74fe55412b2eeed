"""The tag ledger against a dictionary."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.errors import ChannelError, ReplyCode
from shardmq.gateway.session.delivery_tags import DeliveryTags

deliveries = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 1000), st.integers(1, 20), st.booleans()), max_size=20
)


@given(deliveries, st.data())
def test_settling_finds_the_messages_that_were_handed_out(
    spans: list[tuple[str, int, int, bool]], data: st.DataObject
) -> None:
    ledger: DeliveryTags[str] = DeliveryTags()
    model: dict[int, tuple[str, int]] = {}
    for holder, sequence, count, outstanding in spans:
        first = ledger.hand_out(holder, sequence, count, outstanding)
        if outstanding:
            model.update({first + i: (holder, sequence + i) for i in range(count)})
    for _ in range(data.draw(st.integers(0, 30))):
        first = data.draw(st.integers(1, ledger.next_tag))
        last = data.draw(st.integers(first, ledger.next_tag))
        wanted = range(first, last + 1)
        if all(tag in model for tag in wanted):
            settled = [
                (holder, number) for holder, start, end in ledger.settle(first, last) for number in range(start, end)
            ]
            assert settled == [model.pop(tag) for tag in wanted]
        else:
            with pytest.raises(ChannelError):
                ledger.settle(first, last)
        assert ledger.outstanding == len(model)


def test_settling_in_order_for_long_keeps_the_ledger_small() -> None:
    ledger: DeliveryTags[str] = DeliveryTags()
    for i in range(5000):
        first = ledger.hand_out("a", i * 10, 10, outstanding=True)
        assert ledger.settle(first, first + 9) == [("a", i * 10, i * 10 + 10)]
    assert len(ledger._spans) < 1000


def test_an_unknown_tag_is_a_precondition_failure_that_names_it() -> None:
    ledger: DeliveryTags[str] = DeliveryTags()
    ledger.hand_out("a", 0, 3, outstanding=True)
    with pytest.raises(ChannelError, match="delivery tag 4") as caught:
        ledger.settle(2, 4)
    assert caught.value.code == ReplyCode.PRECONDITION_FAILED
    assert ledger.settle(1, 3) == [("a", 0, 3)]


@given(deliveries, st.data())
def test_looking_finds_what_settling_would_and_leaves_it(
    spans: list[tuple[str, int, int, bool]], data: st.DataObject
) -> None:
    ledger: DeliveryTags[str] = DeliveryTags()
    for span in spans:
        ledger.hand_out(*span)
    first = data.draw(st.integers(1, ledger.next_tag))
    last = data.draw(st.integers(first, ledger.next_tag))
    try:
        seen = ledger.look(first, last)
    except ChannelError:
        with pytest.raises(ChannelError):
            ledger.settle(first, last)
    else:
        assert ledger.look(first, last) == seen
        assert ledger.settle(first, last) == seen


@given(deliveries, st.data())
def test_the_tags_up_to_one_are_those_that_are_outstanding(
    spans: list[tuple[str, int, int, bool]], data: st.DataObject
) -> None:
    ledger: DeliveryTags[str] = DeliveryTags()
    tags: set[int] = set()
    for holder, sequence, count, outstanding in spans:
        first = ledger.hand_out(holder, sequence, count, outstanding)
        tags |= set(range(first, first + count)) if outstanding else set()
    for tag in data.draw(st.lists(st.sampled_from(sorted(tags)), unique=True)) if tags else ():
        ledger.settle(tag, tag)
        tags.remove(tag)
    last = data.draw(st.integers(0, ledger.next_tag))
    if last and last not in tags:
        with pytest.raises(ChannelError, match=f"unknown delivery tag {last}"):
            ledger.through(last)
        return
    ranges = ledger.through(last)
    assert all(after > end + 1 for (_, end), (after, _) in pairwise(ranges))
    assert {tag for first, end in ranges for tag in range(first, end + 1)} == {
        tag for tag in tags if tag <= last or not last
    }
    for first, end in ranges:
        ledger.settle(first, end)
    assert ledger.outstanding == (len([tag for tag in tags if tag > last]) if last else 0)


@given(deliveries, st.data())
def test_what_is_passed_on_keeps_its_tags(spans: list[tuple[str, int, int, bool]], data: st.DataObject) -> None:
    ledger: DeliveryTags[str] = DeliveryTags()
    model: dict[int, tuple[str, int]] = {}
    for holder, sequence, count, outstanding in spans:
        first = ledger.hand_out(holder, sequence, count, outstanding)
        if outstanding:
            model.update({first + i: (holder, sequence + i) for i in range(count)})
    start = data.draw(st.integers(0, 1000))
    end = start + data.draw(st.integers(0, 300))
    passed = ledger.pass_on("a", start, end, "nobody")
    moved = {tag for tag, (holder, sequence) in model.items() if holder == "a" and start <= sequence < end}
    assert passed == len(moved)
    for tag, (holder, sequence) in model.items():
        assert ledger.settle(tag, tag) == [("nobody" if tag in moved else holder, sequence, sequence + 1)]


@given(deliveries)
def test_settling_all_leaves_nothing(spans: list[tuple[str, int, int, bool]]) -> None:
    ledger: DeliveryTags[str] = DeliveryTags()
    for span in spans:
        ledger.hand_out(*span)
    outstanding = ledger.outstanding
    assert sum(end - start for _, start, end in ledger.settle_all()) == outstanding
    assert ledger.settle_all() == []
    with pytest.raises(ChannelError):
        ledger.settle(1, 1)


@given(deliveries, st.data())
def test_what_is_restored_is_as_if_it_had_never_been_settled(
    spans: list[tuple[str, int, int, bool]], data: st.DataObject
) -> None:
    ledger: DeliveryTags[str] = DeliveryTags()
    aside: DeliveryTags[str] = DeliveryTags()
    model: dict[int, tuple[str, int]] = {}
    away: dict[int, tuple[str, int]] = {}
    for holder, sequence, count, outstanding in spans:
        first = ledger.hand_out(holder, sequence, count, outstanding)
        if outstanding:
            model.update({first + i: (holder, sequence + i) for i in range(count)})
    for _ in range(data.draw(st.integers(0, 30))):
        what = data.draw(st.sampled_from(["settle", "settle", "settle", "restore", "hand out", "pass on"]))
        if what == "restore":
            for span in aside.take_all():
                ledger.restore(*span)
            model |= away
            away.clear()
        elif what == "hand out":
            model[ledger.hand_out("a", 7000, 1, True)] = ("a", 7000)
        elif what == "pass on":
            start = data.draw(st.integers(0, 1000))
            for each, known in ((ledger, model), (aside, away)):
                each.pass_on("a", start, start + 20, "c")
                known.update(
                    {
                        tag: ("c", number)
                        for tag, (holder, number) in known.items()
                        if holder == "a" and start <= number < start + 20
                    }
                )
        elif model:
            first = data.draw(st.sampled_from(sorted(model)))
            last = data.draw(st.integers(first, first + 25))
            wanted = range(first, last + 1)
            if not all(tag in model for tag in wanted):
                continue
            tag = first
            for holder, begin, end in ledger.settle(first, last):
                aside.restore(tag, holder, begin, end)
                tag += end - begin
            away.update({tag: model.pop(tag) for tag in wanted})
        for each, known in ((ledger, model), (aside, away)):
            assert each.outstanding == len(known)
            found = {tag: each.look(tag, tag)[0] for tag in known}
            assert found == {tag: (holder, number, number + 1) for tag, (holder, number) in known.items()}


def test_settling_one_by_one_aside_takes_one_span() -> None:
    ledger: DeliveryTags[str] = DeliveryTags()
    aside: DeliveryTags[str] = DeliveryTags()
    ledger.hand_out("a", 50, 100, outstanding=True)
    for tag in range(1, 101):
        ((holder, start, end),) = ledger.settle(tag, tag)
        aside.restore(tag, holder, start, end)
    assert aside.take_all() == [(1, "a", 50, 150)]
    assert aside.outstanding == 0


@given(deliveries, st.sampled_from("abc"), st.integers(0, 100))
def test_the_oldest_of_a_holder_is_the_first_of_its_messages_that_is_outstanding(
    spans: list[tuple[str, int, int, bool]], wanted: str, share: int
) -> None:
    ledger: DeliveryTags[str] = DeliveryTags()
    model: dict[int, tuple[str, int]] = {}
    for holder, sequence, count, outstanding in spans:
        first = ledger.hand_out(holder, sequence, count, outstanding)
        if outstanding:
            model.update({first + i: (holder, sequence + i) for i in range(count)})
    for tag in list(model)[: len(model) * share // 100]:
        ledger.settle(tag, tag)
        del model[tag]
    expected = next(((tag, *held) for tag, held in model.items() if held[0] == wanted), None)
    assert ledger.oldest(lambda holder: holder == wanted) == expected
