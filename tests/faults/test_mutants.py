"""Guards that `make faults` takes out are where their mutants look for them."""

import pytest

from . import mutants
from .mutants import Mutant

MUTANTS = [
    mutant
    for value in vars(mutants).values()
    for mutant in (value if isinstance(value, tuple) else (value,))
    if isinstance(mutant, Mutant)
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.guard)
def test_the_guard_is_there_once(mutant: Mutant) -> None:
    assert mutant.applied()
