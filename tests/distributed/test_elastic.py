"""Metrics and events of launchers, and settings that name cores."""

from __future__ import annotations

import pytest

from rushlight.distributed.elastic import events, metrics, rendezvous
from rushlight.distributed.launcher.api import LaunchConfig, elastic_launch
from rushlight.numa.binding import AffinityMode, NumaOptions


def test_functions_are_counted_and_timed(capsys) -> None:
    class Kept(metrics.MetricHandler):
        def __init__(self) -> None:
            self.seen: list[metrics.MetricData] = []

        def emit(self, metric_data) -> None:
            self.seen.append(metric_data)

    kept = Kept()
    metrics.configure(kept, "mine")

    @metrics.prof(group="mine")
    def divides(x):
        return 1 / x

    assert divides(2) == 0.5
    with pytest.raises(ZeroDivisionError):
        divides(0)
    names = [data.name.rpartition(">.")[2] for data in kept.seen]
    assert names == ["divides.success", "divides.duration.ms", "divides.failure", "divides.duration.ms"]
    metrics.configure(metrics.ConsoleMetricHandler(), "shown")
    metrics.publish_metric("shown", "a", 1)
    metrics.put_metric("dropped", 1, "nobody's")
    assert capsys.readouterr().out.endswith("[shown]: a=1\n")


def test_events_are_records() -> None:
    event = events.RdzvEvent("name", "job", "text", "host", 1, events.NodeState.RUNNING, rank=3)
    assert events.RdzvEvent.deserialize(str(event)) == event
    events.record(events.Event("name", events.EventSource.WORKER))
    events.construct_and_record_rdzv_event("job", "text", events.NodeState.INIT)
    assert issubclass(rendezvous.RendezvousGracefulExitError, rendezvous.RendezvousError)


def test_what_a_launcher_cannot_do_it_refuses() -> None:
    config = LaunchConfig(1, 1, 1, rdzv_backend="c10d", numa_options=NumaOptions(AffinityMode.NODE))
    with pytest.raises(NotImplementedError, match="numa_options"):
        elastic_launch(config, print)()
    with pytest.raises(ValueError, match="'etcd' is not there: use 'c10d' or 'static'"):
        elastic_launch(LaunchConfig(1, 1, 1), print)()
