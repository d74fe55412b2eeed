"""Classes tx and confirm."""

from typing import ClassVar

from shardmq.protocol.amqp.methods.fields import Bit, Method


class TxSelect(Method, frozen=True):
    id: ClassVar = (90, 10)
    name: ClassVar = "tx.select"


class TxSelectOk(Method, frozen=True):
    id: ClassVar = (90, 11)
    name: ClassVar = "tx.select-ok"


class TxCommit(Method, frozen=True):
    id: ClassVar = (90, 20)
    name: ClassVar = "tx.commit"


class TxCommitOk(Method, frozen=True):
    id: ClassVar = (90, 21)
    name: ClassVar = "tx.commit-ok"


class TxRollback(Method, frozen=True):
    id: ClassVar = (90, 30)
    name: ClassVar = "tx.rollback"


class TxRollbackOk(Method, frozen=True):
    id: ClassVar = (90, 31)
    name: ClassVar = "tx.rollback-ok"


class ConfirmSelect(Method, frozen=True):
    id: ClassVar = (85, 10)
    name: ClassVar = "confirm.select"
    nowait: Bit = False


class ConfirmSelectOk(Method, frozen=True):
    id: ClassVar = (85, 11)
    name: ClassVar = "confirm.select-ok"
