"""All parameters of components, and what those report."""

from collections.abc import Iterator, Sequence
from typing import Any

from shardmq.topology.changes import ParameterProgressed, ParameterPut, ParameterRemoved, ShovelsReported
from shardmq.topology.entities import Parameter


class Parameters:
    """All parameters of a topology.

    Attributes:
        shovels: the states of shovels, as they were last reported.
    """

    def __init__(self) -> None:
        self._parameters: dict[tuple[str, str, str], Parameter] = {}
        self.shovels: Sequence[dict[str, Any]] = ()

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._parameters.values())

    def __len__(self) -> int:
        return len(self._parameters)

    def get(self, vhost: str, component: str, name: str) -> Parameter | None:
        """A parameter by its name; None where there is none."""
        return self._parameters.get((vhost, component, name))

    def put(self, change: ParameterPut | ParameterProgressed) -> None:
        """Take in a parameter that is new, or changed, or whose component has come further."""
        put = change.parameter
        self._parameters[put.vhost, put.component, put.name] = put

    def remove(self, change: ParameterRemoved) -> None:
        """Forget a parameter that is deleted."""
        del self._parameters[change.vhost, change.component, change.name]

    def report(self, change: ShovelsReported) -> None:
        """Take in what was reported."""
        self.shovels = change.rows
