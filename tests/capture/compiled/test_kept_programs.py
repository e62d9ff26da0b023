"""Programs that a process keeps are found by the next one, and nothing that is wrong on disk is believed."""

import gc
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
from rushlight._capture.recording.running.evaluation import Evaluation
from rushlight._capture.recording.running.kept import COUNTS, Laid, program_key, text_of
from rushlight._capture.trace.reports.events import COUNTERS
from rushlight._capture.trace.segments import kept_segments
from rushlight._engine.dispatch.kept import plan_store
from rushlight._engine.dispatch.kept.plan_packing import packed_alone
from rushlight._engine.dispatch.kept.plan_store import KEEP_PLANS, flush, store
from rushlight._graph.packing import RecordError
from rushlight._native.cache import CACHE_DIR
from rushlight.library.libraries import Library

PROGRAM = """
    import json, sys
    import rushlight as torch
    from rushlight._capture.recording.running.kept import COUNTS
    from rushlight._capture.trace.segments import kept_segments
    from rushlight._capture.trace.reports.events import COUNTERS

    SCALE = float(sys.argv[1])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # its first step is another program
    x = torch.randn(3, 4)

    @torch.compile
    def step(x):
        optimizer.zero_grad()
        loss = (model(x) * SCALE).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(x).item().hex() for _ in range(2)]
    print(json.dumps({"losses": losses, **COUNTS, "found": kept_segments.COUNTS["found"],
                      "traced": COUNTERS["stats"]["unique_graphs"]}))
"""


def ran(path, number):
    """What the program prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(path), repr(number)],
        env={**os.environ, "RUSHLIGHT_KEEP_PLANS": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_a_second_process_compiles_and_traces_nothing(tmp_path):
    number = 1 + random.random()  # of no program that was kept before
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    first = ran(path, number)
    assert first["linked"] == first["traced"] == 2  # segments with other numbers may be found, which do not fit
    second = ran(path, number)
    assert second["linked"] == second["traced"] == 0 and second["kept"] >= 2 and second["found"] >= 2
    assert second["losses"] == first["losses"]


def test_a_record_that_says_something_else_is_left_aside(tmp_path):
    with KEEP_PLANS.scoped(True), CACHE_DIR.scoped(str(tmp_path)):
        exe, laid, (x, w) = linked()
        key, other = program_key(text_of(exe.linked.graph), laid), w.clone()
        expected = [bytes(s) for s in exe(x._ptr, other._ptr)]
        before = dict(COUNTS)
        for wrong in (None, {}, {"form": "linked 2"}, packed_wiring(linked_of(lambda a, b: a * b).wiring)):
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
    return exe, Laid(program._in_specs, program._results, strides, program._aliases, None), (x, w)


def test_a_wiring_that_was_kept_computes_the_same():
    exe, laid, (x, w) = linked()
    data = json.loads(json.dumps(packed_wiring(exe.wiring)))
    wiring = unpacked_wiring(data, laid.in_specs, laid.sizes())
    again = type(exe).kept(wiring, lambda: exe.linked)
    other = w.clone()
    found, expected = again(x._ptr, w._ptr), exe(x._ptr, other._ptr)
    assert [bytes(s) for s in found] == [bytes(s) for s in expected] and torch.equal(w, other)
    assert (again.peak, again.explain()) == (exe.peak, exe.explain())


BROKEN = (KeyError, TypeError, ValueError, IndexError, OverflowError)  # what `unpacked_compiled` takes for refusals


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
    for wrong in (0, -4, 3, True, "4", [4], 1 << 40):
        with pytest.raises(RecordError):
            unpacked_wiring({**json.loads(text), "phases": wrong}, laid.in_specs, laid.sizes())
    for name in ("words", "arguments", "parts", "clusters", "outputs", "on", "form"):
        for wrong in (None, [], {}, "a", [[]], [None], 1 << 40):
            with pytest.raises(RecordError):
                unpacked_wiring({**json.loads(text), name: wrong}, laid.in_specs, laid.sizes())


# ***** segments *****

SCALE = 2.0


def helper(x):
    return torch.relu(x) * SCALE


class Model(torch.nn.Module):
    factor = (3.0,)

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return helper(self.inner(x)) * self.factor[0]


def stepping(model, optimizer):
    def step(x):
        optimizer.zero_grad()
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.fixture
def own_operators(monkeypatch):
    """No operators but the package's, as in a program without libraries."""
    monkeypatch.setattr(Library, "made", 0)


@pytest.fixture
def shelf(tmp_path, own_operators):
    """Segments are kept, in this process alone."""
    with KEEP_PLANS.scoped(True), CACHE_DIR.scoped(str(tmp_path)):
        yield
        plan_store.settle()
        plan_store._PENDING.clear()
        store().clear()


def put():
    """What waits to be kept is there, as it is for a later process."""
    plan_store.settle()
    for kept, key, pack in plan_store._PENDING:
        if (body := pack()) is not None:
            kept.put(key, body)
    plan_store._PENDING.clear()


def traced(call, *args):
    """How many segments a call traced, and how many it found."""
    put()
    torch._dynamo.reset()
    before, found = COUNTERS["stats"]["unique_graphs"], kept_segments.COUNTS["found"]
    result = call(*args)
    put()
    return COUNTERS["stats"]["unique_graphs"] - before, kept_segments.COUNTS["found"] - found, result


def fresh(seed=0):
    """A training step whose weights are new, compiled."""
    torch.manual_seed(seed)
    model = Model()
    return model, torch.compile(stepping(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)))


def test_segments_are_found_by_other_objects(shelf):
    x = torch.randn(3, 4)
    losses = []
    for number in range(3):
        model, step = fresh()
        made, found, loss = traced(step, x)
        losses.append([loss.item(), step(x).item(), step(x).item(), model.inner.weight.sum().item()])
        assert (made, found) == ((1, 0) if number == 0 else (0, 1))
    assert losses[0] == losses[1] == losses[2]


def test_records_are_made_when_a_function_is_dropped_and_not_by_a_fork(shelf):
    before = kept_segments.COUNTS["kept"]
    compiled = torch.compile(lambda x: helper(x) * 4)
    compiled(torch.ones(3))
    assert kept_segments.COUNTS["kept"] == before  # the call did not wait for it
    child = os.fork()
    if not child:
        plan_store.settle()
        os._exit(kept_segments.COUNTS["kept"] - before)
    assert os.waitpid(child, 0)[1] == 0
    del compiled
    gc.collect()
    assert kept_segments.COUNTS["kept"] == before + 1


def test_named_results_are_kept(shelf):
    x, cell = torch.randn(3, 4), torch.nn.LSTMCell(4, 4)

    def run(x):
        with torch.no_grad():
            return torch.max(cell(x)[0], 1)

    for expected in ((1, 0), (0, 1)):
        made, found, result = traced(torch.compile(run), x)
        assert (made, found) == expected and type(result) is torch.return_types.max
        assert torch.equal(result.values, run(x).values)


def test_segments_fit_no_other_world(shelf, monkeypatch):
    x = torch.randn(3, 4)
    assert traced(fresh()[1], x)[:2] == (1, 0)
    eager = lambda: stepping(model := fresh()[0], torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))(x)
    changes = [
        (sys.modules[__name__], "SCALE", 5.0),
        (Model, "factor", (7.0,)),
        (torch.nn.Linear, "forward", lambda self, x: torch.sin(x @ self.weight)),
        (sys.modules[__name__], "helper", lambda x: torch.cos(x)),
        (Model, "forward", lambda self, x: self.inner(x) - 1),
    ]
    for owner, name, value in changes:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            made, _, loss = traced(fresh()[1], x)
            assert made == 1 and torch.equal(loss, eager()), name
    assert traced(fresh()[1], torch.randn(5, 4))[0] == 1
    assert traced(fresh()[1], x)[:1] == (0,)


def test_what_a_trace_did_not_follow_is_not_kept(shelf):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    before = kept_segments.COUNTS["kept"]
    torch.compile(lambda x: Double.apply(x) + 1)(torch.ones(2))
    own = torch.Generator()
    torch.compile(lambda x: x + torch.rand(2, generator=own))(torch.ones(2))
    torch.compile(lambda x: x * 2)(torch.ones(2, requires_grad=True))
    namespace = {"torch": torch}
    exec("def unknown(x):\n    return torch.sin(x) * 3", namespace)  # noqa: S102 - code without a file
    torch.compile(namespace["unknown"])(torch.ones(2))
    plan_store.settle()
    assert kept_segments.COUNTS["kept"] == before


@pytest.mark.slow
def test_a_segment_is_checked(shelf):
    call = torch.compile(lambda x: helper(x) + 1)
    x = torch.ones(3)
    assert traced(call, x)[:2] == (1, 0)
    kept = store()
    key, body = next((k, b) for k, b in kept._fresh.items() if b.startswith(b'{"modules"'))
    assert traced(call, x)[:2] == (0, 1)
    head = json.loads(body)
    wrong = [
        b"", b"[]", b"{}", b"\xff", body[:-7],
        *[json.dumps({k: v for k, v in head.items() if k != name}).encode() for name in head],
        *[json.dumps({**head, name: value}).encode() for name in head for value in (None, 3, "x", [[]], {"a": 1})
          if name != "reason" and (name, value) not in (("inputs", 3), ("modules", {"a": 1}), ("calls", None), ("calls", "x"),
                                                         ("most_bytes", 3))],
        *[json.dumps({**head, "text": head["text"].replace("    t = table[0]", f"    {line}\n    t = table[0]", 1)}).encode() for line in (
            "__import__('os')", "eval('1')", "s.system('x')", "print(1)", "c0.__class__.mro()", "lambda: 1", "exec", "open('/x')",
        )],
        body.replace(b'"entries":[["load"', b'"entries":[["open(1)"', 1).replace(b'"entries":[["check"', b'"entries":[["check2"', 1)[:-1],
    ]  # fmt: skip
    for number, each in enumerate(wrong):
        kept._fresh = {k: b for k, b in kept._fresh.items() if not b.startswith(b'{"modules"')}
        kept.put(key, each)
        made, found, result = traced(call, x)
        assert (made, found) == (1, 0) and result.tolist() == [3.0] * 3, (number, list(head))
        put()


def test_artifacts_fill_another_cache(tmp_path, own_operators):
    with KEEP_PLANS.scoped(True):
        x = torch.ones(3)
        with CACHE_DIR.scoped(str(tmp_path / "a")):
            assert traced(torch.compile(lambda x: helper(x) * 7), x)[:2] == (1, 0)
            data, info = torch.compiler.save_cache_artifacts()
            assert len(info.precompile_artifacts) >= 2
        with CACHE_DIR.scoped(str(tmp_path / "b")):
            assert torch.compiler.load_cache_artifacts(data) == info
            again = torch.compiler.save_cache_artifacts()[1]
            assert set(again.precompile_artifacts) >= set(info.precompile_artifacts)
            for wrong in (b"", b"x" * 200, data[:-1], data[:100] + b"?" + data[101:], data + b"x"):
                with pytest.raises(ValueError, match="artifacts"):
                    torch.compiler.load_cache_artifacts(wrong)
            with pytest.raises(TypeError, match="takes bytes"):
                torch.compiler.load_cache_artifacts("text")


# ***** programs that compute numbers *****


def stepping_with(kind, **options):
    """A training step whose weights are new, compiled."""
    torch.manual_seed(0)
    model = Model()
    return model, torch.compile(stepping(model, kind(model.parameters(), **options)))


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.NAdam])
def test_numbers_of_the_host_are_kept(shelf, kind):
    x, losses = torch.randn(3, 4), []
    for expected in (1, 0):
        model, step = stepping_with(kind, lr=0.01)
        step(x)  # the first step makes the state
        made, found, loss = traced(step, x)
        assert (made, found) == (expected, 1 - expected)  # the record of the first step fits no later one
        losses.append([loss.item(), *[step(x).item() for _ in range(3)], model.inner.weight.sum().item()])
    model, step = stepping_with(kind, lr=0.01)
    with torch.compiler.set_stance("force_eager"):
        eager = [step(x).item() for _ in range(5)][1:]
    assert losses[0] == losses[1] and losses[0][:-1] == eager


def test_numbers_that_were_kept_are_checked():
    x, count = torch.ones(2), torch.tensor(3.0)
    with Recording() as recording:
        number = 1 - 0.5 ** recording.stand_in(count).item()
        program = recording.finish([recording.stand_in(x) * number])
    specs = [t._spec for t in recording.inputs]
    data = json.dumps(program._evaluation.packed())
    again = Evaluation.unpacked(json.loads(data), specs, 1)
    assert again(recording.inputs) == program._evaluation(recording.inputs) == [0.875]
    refused = tried = 0
    for value in (-2, 1 << 40, "x", None, [[]], True):
        for number in range(len(list(places(json.loads(data))))):
            changed = json.loads(data)
            held, key = list(places(changed))[number]
            held[key], tried = value, tried + 1
            try:
                Evaluation.unpacked(changed, specs, 1)
            except (RecordError, NotImplementedError, *BROKEN):
                refused += 1
    assert refused > 0.8 * tried


def test_random_numbers_are_kept(shelf):
    x, drop = torch.ones(4, 8), torch.nn.functional.dropout

    def run(x):
        return drop(helper(x), 0.5) + torch.rand(8) * torch.randn(4, 8)

    for expected in ((1, 0), (0, 1)):
        torch.manual_seed(3)
        step = torch.compile(run)
        made, found, first = traced(step, x)
        results = [first, step(x), torch.rand(2)]  # the stream goes on behind them
        assert (made, found) == expected
        torch.manual_seed(3)
        assert all(torch.equal(a, b) for a, b in zip(results, [run(x), run(x), torch.rand(2)], strict=True))
    kept = store()
    key, body = next((k, b) for k, b in kept._fresh.items() if b.startswith(b'{"modules"'))
    head = json.loads(body)
    for row in head["program"]["draws"]:
        for place, wrong in [
            (0, "choice"),
            (1, "8"),
            (1, "x"),
            (2, 1 << 50),
            (2, -1),
            (3, 8),
            (4, []),
            (4, [["int", "x"]]),
        ]:
            before, row[place] = row[place], wrong
            kept.put(key, json.dumps(head).encode())
            assert traced(step, x)[:2] == (1, 0)
            row[place] = before
