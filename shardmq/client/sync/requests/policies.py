"""Policies, topic permissions and parameters: part of Connection."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from shardmq.client.core.requests import policies
from shardmq.client.core.requests.request import Request

T = TypeVar("T")


class PolicyRequests(ABC):
    """The verbs of policymakers: part of a connection.

    Policies take the tag policymaker and a permission in the virtual host, or the tag administrator, as do operator
    policies and topic permissions; others get AccessRefused.
    """

    @abstractmethod
    def _ask(self, request: Request[T]) -> T:
        """Ask, and wait for the answer."""

    def policy_put(self, vhost: str, policy: str, settings: Mapping[str, Any], operator: bool = False) -> None:
        """Make a policy, or change one; returns when it has its effect.

        Args:
            vhost: where.
            policy: its name.
            settings: as RabbitMQ's HTTP API takes them: "pattern", a regular expression that is found anywhere in a
                name; "definition", as {"max-length": 1000}; "priority", 0 where it is not given; and "apply-to": all,
                exchanges, queues, classic_queues, quorum_queues or streams.
            operator: whether it is an operator policy.
        """
        self._ask(policies.policy_put(vhost, policy, settings, operator))

    def policy_delete(self, vhost: str, policy: str, operator: bool = False) -> None:
        """Remove a policy; returns when it has no effect any more."""
        self._ask(policies.policy_delete(vhost, policy, operator))

    def policy_preview(
        self, vhost: str, policy: str, settings: Mapping[str, Any] | None, operator: bool = False
    ) -> list[dict[str, Any]]:
        """What setting a policy would change, or with settings None removing it. Nothing changes.

        Returns:
            A table for each queue and exchange that it matches or matched: "kind", "name", "policy" and
            "operator_policy" that would apply, the same with "_before" for those that do, and "changes": [before,
            after] by argument.
        """
        return self._ask(policies.policy_preview(vhost, policy, settings, operator))

    def policy_match(
        self,
        vhost: str,
        name: str,
        kind: Literal["queue", "exchange"] = "queue",
        type: Literal["classic", "quorum", "stream"] = "classic",
    ) -> list[dict[str, Any]]:
        """Which policies match a name, those that apply first.

        Args:
            vhost: where.
            name: of a queue or an exchange, which need not exist.
            kind: which of them.
            type: of the queue, where it does not exist.

        Returns:
            A table for each, as of `topology("policies")`, with "applies".
        """
        return self._ask(policies.policy_match(vhost, name, kind, type))

    def topic_permission_put(self, user: str, vhost: str, exchange: str, write: str, read: str) -> None:
        """Set which routing keys a user may publish with and bind by at a topic exchange, as regular expressions.

        {username}, {vhost} and {client_id} stand for what the connection has for them.
        """
        self._ask(policies.topic_permission_put(user, vhost, exchange, write, read))

    def topic_permission_delete(self, user: str, vhost: str, exchange: str | None = None) -> None:
        """Take a user's topic permission for an exchange away; all of them where it is None."""
        self._ask(policies.topic_permission_delete(user, vhost, exchange))

    def parameter_put(self, vhost: str, component: str, name: str, value: Mapping[str, Any] | None) -> None:
        """Give a component of the broker a parameter, as a shovel, or change it; it works from then on.

        Args:
            vhost: where.
            component: "shovel".
            name: of the parameter.
            value: as RabbitMQ's HTTP API takes it, as {"src-uri": "amqp://", "src-queue": …}. None has the component
                begin anew with what it was given.
        """
        self._ask(policies.parameter_put(vhost, component, name, value))

    def parameter_delete(self, vhost: str, component: str, name: str, generation: int = 0) -> None:
        """Take a parameter away.

        Args:
            vhost: where.
            component: "shovel".
            name: of the parameter.
            generation: of the one that is meant, as `topology("parameters")` has it; one that was set since stays.
                0 for any.
        """
        self._ask(policies.parameter_delete(vhost, component, name, generation))

    def shovels_report(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Tell the broker the states of all its shovels, as the process does that runs them; for administrators."""
        self._ask(policies.shovels_report([dict(row) for row in rows]))
