"""An etcd for the tests of this folder that need a real one."""

from tests.replication.etcd.conftest import etcd

__all__ = ["etcd"]
