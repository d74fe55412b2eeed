"""Names of exports."""

from shardmq.spark.jobs.export_folder import Origin, is_of, new_id

HERE = Origin("b1", "/", "dead")


def test_exports_of_a_queue_are_told_from_those_of_other_queues_virtual_hosts_and_brokers() -> None:
    name = new_id(HERE)
    assert is_of(name, HERE)
    assert new_id(HERE) != name
    for other in (Origin("b1", "/", "dead2"), Origin("b1", "tenant", "dead"), Origin("b2", "/", "dead")):
        assert not is_of(name, other)
        assert other.digest != HERE.digest


def test_where_the_broker_is_unknown_names_are_as_earlier_versions_made_them_and_tell_nothing() -> None:
    unknown = Origin("", "/", "dead")
    name = new_id(unknown)
    assert name.startswith("export-28a3a5e81d1e89f0-")
    assert unknown.digest == HERE.name_digest
    assert not is_of(name, unknown)
    assert not is_of(name, HERE)
