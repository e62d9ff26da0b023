"""torch.monitor: events reach handlers, statistics are those of their window."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

import rushlight as torch
from rushlight.monitor import STAT_EVENT, Aggregation, Event, EventHandlerHandle, Stat, TensorboardEventHandler

ALL = list(Aggregation)


@pytest.fixture
def seen():
    events: list[Event] = []
    handle = torch.monitor.register_event_handler(events.append)
    yield events
    torch.monitor.unregister_event_handler(handle)


def test_events_reach_every_handler_until_it_is_taken_off(seen: list[Event]) -> None:
    event = Event("epoch", datetime(2026, 1, 2), {"loss": 0.5, "step": 3, "name": "a", "done": True})
    torch.monitor.log_event(event)
    assert seen == [event] and event.data["step"] == 3 and event.name == "epoch"
    extra: list[Event] = []
    handle = torch.monitor.register_event_handler(extra.append)
    torch.monitor.unregister_event_handler(handle)
    torch.monitor.log_event(event)
    assert not extra and len(seen) == 2


def test_statistics_of_a_window(seen: list[Event]) -> None:
    stat = Stat("x", ALL, timedelta(hours=1), max_samples=3)
    stat.add(1.0)
    stat.add(4)
    assert stat.count == 2 and set(stat.get().values()) == {0.0} and not seen
    stat.add(2.0)
    want = {"value": 2.0, "mean": 7 / 3, "count": 3.0, "sum": 7.0, "max": 4.0, "min": 1.0}
    assert seen[0].name == STAT_EVENT and seen[0].data == {f"x.{k}": v for k, v in want.items()}
    assert stat.count == 0 and stat.get() == {Aggregation[k.upper()]: v for k, v in want.items()}


def test_windows_close_by_time_and_with_the_object(seen: list[Event]) -> None:
    stat = Stat("t", [Aggregation.SUM], timedelta(0))
    stat.add(5.0)
    stat.add(6.0)  # the window of the first value is over
    assert [e.data for e in seen] == [{"t.sum": 5.0}]
    del stat
    assert [e.data for e in seen][1:] == [{"t.sum": 6.0}]


def test_tensorboard_gets_scalars_and_wrong_types_are_refused(seen: list[Event]) -> None:
    written: list[tuple[str, float]] = []

    class Writer:
        def add_scalar(self, key: str, value: float, walltime: float) -> None:
            written.append((key, value))

    handle = torch.monitor.register_event_handler(TensorboardEventHandler(Writer()))
    stat = Stat("y", [Aggregation.MAX], timedelta(hours=1), 1)
    stat.add(2.0)
    torch.monitor.log_event(Event("other", datetime(2026, 1, 2), {}))
    torch.monitor.unregister_event_handler(handle)
    assert written == [("y.max", 2.0)]
    for bad in (lambda: Event("a", datetime(2026, 1, 2), {"k": [1]}), lambda: Event(1, 2, 3), lambda: stat.add("x"), EventHandlerHandle,
                lambda: torch.monitor.log_event(3), lambda: Stat("z", [3], timedelta(1))):  # fmt: skip
        with pytest.raises(TypeError):
            bad()
