"""Each guard of the replica core, removed: the simulator finds it within 10,000 seeds."""

import pytest

from tests.replication.simulator.mutations import CAUGHT_BY, MUTATIONS, applied
from tests.replication.simulator.world import run_seed
from tests.replication.test_simulator import SEEDS


def is_found(seed: int) -> bool:
    """Whether a seed finds something. A core without a guard may also break its own assertions: that is found, too."""
    try:
        run_seed(seed)
    except Exception:  # noqa: BLE001 - of whatever kind
        return True
    return False


def test_each_mutation_has_seeds() -> None:
    assert CAUGHT_BY.keys() == MUTATIONS.keys()


@pytest.mark.parametrize("guard", MUTATIONS)
def test_without_its_guard_the_simulator_finds_a_fault(guard: str) -> None:
    # Any change of the core changes the course of all seeds: where those known find nothing any more, others do.
    seeds = [*CAUGHT_BY[guard], *range(SEEDS)]
    assert not any(is_found(seed) for seed in CAUGHT_BY[guard]), (
        "a seed that finds something with its guard shows nothing"
    )
    with applied(MUTATIONS[guard]):
        assert any(is_found(seed) for seed in seeds)
