"""Names of exports."""

from shardmq.spark.jobs.export_folder import new_id, prefix_of


def test_exports_of_a_queue_are_told_from_others() -> None:
    assert new_id("a").startswith(prefix_of("a"))
    assert prefix_of("a") != prefix_of("b")
    assert new_id("a") != new_id("a")
