"""Programs that a process keeps are found by the next one, and nothing that is wrong on disk is believed."""

import json
import os
import random
import subprocess
import sys
import textwrap

import pytest

import rushlight as torch
from rushlight._backends.cpu.program.wiring import packed_wiring, unpacked_wiring
from rushlight._capture.recording import Recording
from rushlight._capture.recording.kept import COUNTS, Laid, program_key, text_of
from rushlight._engine.dispatch.plan_packing import packed_alone
from rushlight._engine.dispatch.plan_store import KEEP_PLANS, flush, store
from rushlight._graph.packing import RecordError

PROGRAM = """
    import json, sys
    import rushlight as torch
    from rushlight._capture.recording.kept import COUNTS

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(3, 4)

    @torch.compile
    def step(x):
        optimizer.zero_grad()
        loss = (model(x) * float(sys.argv[1])).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(x).item().hex() for _ in range(2)]
    print(json.dumps({"losses": losses, **COUNTS}))
"""


def ran(number):
    """What the program prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), repr(number)],
        env={**os.environ, "RUSHLIGHT_KEEP_PLANS": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_a_second_process_links_nothing():
    number = 1 + random.random()  # of no program that was kept before
    first = ran(number)
    assert first["linked"] > 0 and first["kept"] == 0
    second = ran(number)
    assert second["linked"] == 0 and second["kept"] == first["linked"]
    assert second["losses"] == first["losses"]


def test_a_record_that_says_something_else_is_left_aside():
    with KEEP_PLANS.scoped(True):
        exe, laid, (x, w) = linked()
        key, other = program_key(text_of(exe.linked.graph), laid), w.clone()
        expected = [bytes(s) for s in exe(x._ptr, other._ptr)]
        before = dict(COUNTS)
        for wrong in (None, {}, {"form": "linked 1"}, packed_wiring(linked_of(lambda a, b: a * b).wiring)):
            store().put(key, packed_alone(wrong) or b"")
            again, _, _ = linked((x, w))
            other = w.clone()
            assert [bytes(s) for s in again(x._ptr, other._ptr)] == expected
        assert COUNTS["kept"] == before["kept"]
        flush()
        linked((x, w))
        assert COUNTS["kept"] == before["kept"] + 1
        store().clear()


def linked_of(function):
    """The executable of a function of two matrices."""
    x, w = torch.randn(4, 6), torch.randn(4, 6)
    with Recording() as recording:
        program = recording.finish([function(recording.stand_in(x), recording.stand_in(w))])
    return program.compile()


def linked(inputs=None):
    """A linked program, how it lies, and its inputs."""
    x, w = inputs or (torch.randn(4, 6), torch.randn(6, 6))
    with Recording() as recording:
        a, b = recording.stand_in(x), recording.stand_in(w)
        y = torch.softmax(torch.relu(a @ b) @ b, -1)
        b.add_(b)
        program = recording.finish([y, y.sum(0)])
    exe = program.compile()
    strides = [*program._layouts, *[c.given.layout.strides for c in program._changed]]
    return exe, Laid(program._in_specs, program.graph, strides, program._aliases, None), (x, w)


def test_a_wiring_that_was_kept_computes_the_same():
    exe, laid, (x, w) = linked()
    data = json.loads(json.dumps(packed_wiring(exe.wiring)))
    wiring = unpacked_wiring(data, laid.in_specs, laid.sizes())
    again = type(exe).kept(wiring, lambda: exe.linked)
    other = w.clone()
    found, expected = again(x._ptr, w._ptr), exe(x._ptr, other._ptr)
    assert [bytes(s) for s in found] == [bytes(s) for s in expected] and torch.equal(w, other)
    assert (again.peak, again.explain()) == (exe.peak, exe.explain())


def places(data):
    """Where the numbers of a nested list are."""
    for key in range(len(data)) if type(data) is list else data:
        if type(data[key]) in (list, dict):
            yield from places(data[key])
        elif type(data[key]) is int:
            yield data, key


def test_a_wiring_is_checked():
    exe, laid, _ = linked()
    text = json.dumps(packed_wiring(exe.wiring))
    refused = tried = 0
    for value in (-2, 1 << 40):
        for number in range(len(list(places(json.loads(text)["clusters"])))):
            data = json.loads(text)
            held, key = list(places(data["clusters"]))[number]
            held[key], tried = value, tried + 1
            try:
                unpacked_wiring(data, laid.in_specs, laid.sizes())
            except RecordError:
                refused += 1
    assert refused == tried
    for name in ("words", "arguments", "parts", "clusters", "outputs", "on", "form"):
        for wrong in (None, [], {}, "a", [[]], [None], 1 << 40):
            with pytest.raises(RecordError):
                unpacked_wiring({**json.loads(text), name: wrong}, laid.in_specs, laid.sizes())
