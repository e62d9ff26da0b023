"""Processes that compile beside this one: the same objects, and nothing lost where they die, hang, lie, or are forked away."""

from __future__ import annotations

import os
import time

import pytest

from rushlight._native import jit, llvm_compiler, objectcode, workers
from rushlight._native.cache import CACHE_DIR, ObjectCache, default_cache

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_spawn"), reason="workers are spawned")


def text_of(number: int) -> str:
    return f"define i64 @f() {{\n  ret i64 {number}\n}}\n"


@pytest.fixture
def pool(monkeypatch, tmp_path):
    """No workers yet, an empty cache, and a process that compiled enough to want some."""
    workers.close()
    monkeypatch.setattr(workers, "_COMPILED", [workers.BURST])
    cache = ObjectCache(str(tmp_path / "cache"), "machine")
    monkeypatch.setattr(objectcode, "default_cache", lambda: cache)
    with workers.COMPILE_WORKERS.scoped(1):
        yield cache
    workers.close()


def fake(monkeypatch, tmp_path, body):
    """A worker that does something else; `head` and `text` are those of each request."""
    script = tmp_path / "worker.py"
    script.write_text(f"""
import os, struct, sys, time
from hashlib import blake2b
read, out = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
read.readline()
while head := read.read(13):
    number, level, size = struct.unpack("<QBI", head)
    text = read.read(size)
    def seal(status, data):
        return blake2b(head + text + bytes([status]) + data, digest_size=32).digest()
    def answer(data, status=0, number=number, size=None, check=None):
        n = len(data) if size is None else size
        out.write(struct.pack("<QBI32s", number, status, n, check or seal(status, data)) + data)
    {body}
""")
    monkeypatch.setattr(workers, "SCRIPT", str(script))


def sent(number: int) -> None:
    objectcode.ahead("none", lambda: text_of(number), "test", text_of(number))


def got(number: int) -> bytes:
    return objectcode.obtain("none", lambda: text_of(number), "test", text_of(number))


def begun(number: int, cache: ObjectCache) -> None:
    """Wait until a worker is at a text, or done with it, or given up."""
    task = workers._POOL[0].tasks.get(cache.key("test", text_of(number)))
    until = time.monotonic() + 60
    while task is not None and task.state == 0 and not workers._POOL[0].failed:
        assert time.monotonic() < until
        time.sleep(0.002)


def expected(number: int) -> bytes:
    return jit.compile_object(text_of(number), "none")


def test_the_same_objects(pool, monkeypatch):
    made = {n: expected(n) for n in range(8)}
    for n in made:
        sent(n)
    begun(0, pool)
    first = workers._POOL[0].tasks[pool.key("test", text_of(0))]
    here, compile_object = [], jit.compile_object
    with monkeypatch.context() as patch:
        patch.setattr(jit, "compile_object", lambda text, opt: here.append(text) or compile_object(text, opt))
        assert got(0) == made[0]
    assert first.state == 2 and text_of(0) not in here
    assert {n: got(n) for n in made} == made
    assert all(pool.get(pool.key("test", text_of(n))) == data for n, data in made.items()), "what came is kept on disk"
    assert not workers._POOL[0].tasks


def test_levels_are_the_same_there(pool):
    text = (
        "define i64 @f(i64 %x) {\n  %p = alloca i64\n  store i64 %x, ptr %p\n  %y = load i64, ptr %p\n  ret i64 %y\n}\n"
    )
    for opt in llvm_compiler.OPT_LEVELS:
        objectcode.ahead(opt, lambda: text, opt, text)
    for opt in llvm_compiler.OPT_LEVELS:
        assert objectcode.obtain(opt, lambda: text, opt, text) == jit.compile_object(text, opt)


def test_what_no_worker_has_begun_is_compiled_here(pool, monkeypatch, tmp_path):
    fake(monkeypatch, tmp_path, "time.sleep(600)")
    for n in range(3):
        sent(n)
    begun(0, pool)
    start = time.monotonic()
    assert got(2) == expected(2)
    assert got(1) == expected(1)
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("length", [0, 1 << 16])
def test_who_waits_compiles_other_short_texts_the_last_first(pool, monkeypatch, tmp_path, length):
    free = tmp_path / "free"
    fake(monkeypatch, tmp_path, f"while not os.path.exists({str(free)!r}): time.sleep(0.001)\n    answer(b'no', 1)")
    made = {n: expected(n) for n in range(4)}
    for n in made:
        sent(n)
        begun(0, pool)
    objectcode.ahead("none", lambda: text_of(9) + ";" * length, "long")
    here, compile_object = [], jit.compile_object

    def compiled(text, opt):
        here.append(text)
        if text == text_of(1):
            free.touch()  # now the worker has an answer: that it cannot
        return compile_object(text, opt)

    monkeypatch.setattr(jit, "compile_object", compiled)
    assert got(0) == made[0]
    long = [] if length else [text_of(9)]
    assert here == [*long, *(text_of(n) for n in (3, 2, 1, 0))]
    assert {n: got(n) for n in (1, 2, 3)} == {n: made[n] for n in (1, 2, 3)} and len(here) == len(long) + 4


def test_who_waits_for_a_long_text_compiles_as_much_of_others(pool, monkeypatch, tmp_path):
    free = tmp_path / "free"
    fake(monkeypatch, tmp_path, f"while not os.path.exists({str(free)!r}): time.sleep(0.001)\n    answer(b'no', 1)")
    texts = [text_of(n) + ";" * (length << 10) for n, length in enumerate((100, 50, 60, 110, 90))]
    ask = lambda how, text: how("none", lambda: text, "test", text)
    ask(objectcode.ahead, texts[0])
    task = workers._POOL[0].tasks[pool.key("test", texts[0])]
    until = time.monotonic() + 60
    while task.state == 0 and time.monotonic() < until:
        time.sleep(0.002)
    for text in texts[1:]:
        ask(objectcode.ahead, text)
    here, compile_object = [], jit.compile_object

    def compiled(text, opt):
        here.append(len(text) >> 10)
        free.touch()
        return compile_object(text, opt)

    monkeypatch.setattr(jit, "compile_object", compiled)
    ask(objectcode.obtain, texts[0])
    assert here == [90, 100], "the last that is not longer, no more than one as long; then the worker could not"


def test_a_text_that_is_none_is_an_error_for_who_needs_it(pool, monkeypatch, tmp_path):
    free = tmp_path / "free"
    fake(monkeypatch, tmp_path, f"while not os.path.exists({str(free)!r}): time.sleep(0.001)\n    answer(b'no', 1)")
    sent(0)
    begun(0, pool)
    objectcode.ahead("none", lambda: "define nothing", "broken")
    compile_object = jit.compile_object
    monkeypatch.setattr(jit, "compile_object", lambda text, opt: free.touch() or compile_object(text, opt))
    assert got(0) == expected(0)
    with pytest.raises(RuntimeError):
        objectcode.obtain("none", lambda: "define nothing", "broken")


def test_a_text_is_sent_once_and_not_where_it_is_kept(pool):
    pool.put(pool.key("test", text_of(1)), b"kept")
    asked = []
    for _ in range(2):
        for n in (1, 2):
            objectcode.ahead("none", lambda n=n: asked.append(n) or text_of(n), "test", text_of(n))
    assert asked == [2]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("os._exit(1)", "died"),
        ("os.kill(os.getpid(), 9)", "died"),
        ("out.write(b'x' * 5); os._exit(0)", "died"),
        ("answer(b'x' * 100, number=number + 1)", "something else"),
        ("answer(b'\\x7fELF' + b'x' * 100, check=b'y' * 32)", "damaged"),
        ("answer(b'no object')", "no object"),
        ("answer(b'', size=1 << 31)", "something else"),
        ("out.write(b'garbage' * 100)", "something else"),
        ("answer(b'x' * 10, size=1000); os._exit(0)", "died"),
        ("time.sleep(600)", "does not answer"),
        ("out.write(b'x'); time.sleep(600)", "does not answer"),
    ],
)
def test_a_worker_that_cannot_be_trusted_is_given_up(pool, monkeypatch, tmp_path, capfd, body, reason):
    from rushlight._base.log import LOG

    monkeypatch.setattr(workers, "PATIENCE", 0.5 if "sleep" in body else 30.0)
    fake(monkeypatch, tmp_path, body)
    with LOG.scoped(frozenset({"cache"})):
        sent(1)
        sent(2)
        begun(1, pool)
        assert got(1) == expected(1)
        assert got(2) == expected(2)
    error = capfd.readouterr().err
    assert "is given up" in error
    assert reason in error
    assert not workers.wanted()
    sent(3)
    assert got(3) == expected(3)


def test_no_process_is_left(pool, monkeypatch, tmp_path):
    fake(monkeypatch, tmp_path, "time.sleep(600)")
    sent(1)
    begun(1, pool)
    (worker,) = workers._POOL[0].workers
    workers.close()
    until = time.monotonic() + 30
    while True:
        try:
            os.kill(worker.pid, 0)
        except ProcessLookupError:
            break
        assert time.monotonic() < until, "the worker lives on"
        time.sleep(0.01)


def test_idle_workers_end_and_others_begin(pool, monkeypatch):
    monkeypatch.setattr(workers, "IDLE", 0.05)
    for turn in range(2):
        sent(turn)
        begun(turn, pool)
        assert got(turn) == expected(turn)
        until = time.monotonic() + 30
        while workers._POOL[0].threads:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert not workers._POOL[0].workers


def test_text_that_llvm_refuses(pool):
    objectcode.ahead("none", lambda: "no text of LLVM", "test", "wrong")
    with pytest.raises(RuntimeError):
        objectcode.obtain("none", lambda: "no text of LLVM", "test", "wrong")
    sent(1)
    begun(1, pool)
    assert got(1) == expected(1)
    assert not workers._POOL[0].failed, "the worker is none the worse"


def test_without_a_cache(pool, monkeypatch):
    off = ObjectCache("", "machine")
    monkeypatch.setattr(objectcode, "default_cache", lambda: off)
    sent(1)
    task = workers._POOL[0].tasks[off.key("test", text_of(1))]
    while task.state == 0:
        time.sleep(0.002)
    assert got(1) == expected(1)


def test_a_cache_that_cannot_be_written(pool, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = ObjectCache(str(blocked / "cache"), "machine")
    monkeypatch.setattr(objectcode, "default_cache", lambda: cache)
    with pytest.warns(RuntimeWarning, match="not kept on disk"):
        sent(1)
        assert got(1) == expected(1)


def test_nothing_starts_where_it_is_pointless(pool, monkeypatch):
    with workers.COMPILE_WORKERS.scoped(0):
        assert not workers.wanted()
    assert workers.wanted()
    monkeypatch.setattr(workers, "_COMPILED", [workers.BURST - 1])
    assert not workers.wanted(), "few kernels are compiled here sooner"


@pytest.mark.parametrize(("threads", "cores", "count"), [(1, 8, 0), (8, 1, 0), (2, 2, 1), (4, 8, 3), (64, 64, 8)])
def test_how_many(monkeypatch, threads, cores, count):
    from rushlight._backends.cpu.runtime.limits import NUM_THREADS

    monkeypatch.setattr(workers, "usable_cores", lambda: cores)
    with NUM_THREADS.scoped(threads):
        assert workers._default_count() == count


_PROGRAM = """
import os, sys, time
import rushlight as torch
from rushlight._native import workers
torch.set_num_threads(2)
torch.manual_seed(0)
x = torch.randn(8, 8, requires_grad=True)
def work(k):
    y = torch.nn.functional.layer_norm((x.exp() * (k + 0.5)).softmax(-1), (8,))
    (y.std(-1).sum() + y.cumsum(0).var()).backward()
    return x.grad.sum().item()
"""


def _started(run_python, tmp_path, code, **more):
    env = {"RUSHLIGHT_CACHE_DIR": str(tmp_path / "cache"), "RUSHLIGHT_COMPILE_WORKERS": "1", "RUSHLIGHT_SHIPPED": "0"}
    return run_python("-c", _PROGRAM + code, env={**os.environ, **env}, timeout=300, **more)


def test_a_fork_in_the_middle(run_python, tmp_path):
    """It ends the workers, so that no thread is forked away and no pipe inherited; both sides compile for themselves, and may start others."""
    code = """
import threading, warnings
warnings.simplefilter("error", DeprecationWarning)  # Python's, of a fork beside threads
from rushlight._native import jit
for k in range(40):
    workers.send(b"%032d" % k, "kernel", "define i64 @f%d() {\\n  ret i64 1\\n}\\n" % k, jit.processor)
before = threading.active_count()
pid = os.fork()
mine = threading.active_count()
if pid == 0:
    value = work(1)
    workers.close()
    os._exit(0 if value == value and not workers._POOL else 1)
taken = {workers.take(b"%032d" % k) for k in range(40)}
workers.send(b"k" * 32, "kernel", "define i64 @f() {\\n  ret i64 1\\n}\\n", jit.processor)
while not workers._POOL[0].tasks[b"k" * 32].state: time.sleep(0.001)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), before, mine, taken, workers.take(b"k" * 32)[0][:4], work(1) == work(1) or True)
"""
    printed = _started(run_python, tmp_path, code, check=True).stdout.strip()
    assert printed == "0 2 1 {(None, None)} b'\\x7fELF' True"


@pytest.mark.slow
def test_ctrl_c_in_the_middle(run_python, tmp_path):
    code = """
import signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start background jobs with it ignored
big = "\\n".join("define i64 @f%d(i64 %%x) {\\n  %%y = mul i64 %%x, %d\\n  ret i64 %%y\\n}" % (k, k) for k in range(3000))
from rushlight._native import jit
workers.send(b"k" * 32, "native", big, jit.processor)
pool = workers._POOL[0]
while not pool.tasks[b"k" * 32].state:
    time.sleep(0.001)
threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
caught = 0
try:
    workers.take(b"k" * 32)
    time.sleep(1)
except KeyboardInterrupt:
    caught = 1
data, text = workers.take(b"k" * 32)
print(caught, data is None or data[:4] == b"\\x7fELF", pool.failed, work(2) == work(2) or True)
"""
    for _ in range(3):  # an interrupt that arrives in a finalizer is printed and lost, as everywhere in Python
        printed = _started(run_python, tmp_path, code, check=True).stdout.split()
        assert printed[1:] == ["True", "False", "True"]
        if printed[0] == "1":
            return
    raise AssertionError("the interrupt never arrived")


def test_the_parent_dies(run_python, tmp_path):
    """A worker whose parent is killed sees the end of its input, and ends."""
    code = """
from rushlight._native import jit
workers.send(b"k" * 32, "kernel", "define i64 @f() {\\n  ret i64 1\\n}\\n", jit.processor)
workers.take(b"k" * 32)
while not workers._POOL[0].workers: time.sleep(0.01)
print(next(iter(workers._POOL[0].workers)).pid, flush=True)
os.kill(os.getpid(), 9)
"""
    pid = int(_started(run_python, tmp_path, code).stdout)
    until = time.monotonic() + 60
    while os.path.exists(f"/proc/{pid}") and "llvm_compiler" in _command(pid):
        assert time.monotonic() < until
        time.sleep(0.02)


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


def test_processes_of_multiprocessing_start_none(run_python, tmp_path):
    code = """
import multiprocessing
def child(pipe):
    workers._COMPILED[0] = 100
    pipe.send(workers.wanted())
if __name__ == "__main__":
    os.environ.pop("RUSHLIGHT_COMPILE_WORKERS")
    workers._COMPILED[0] = 100
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=child, args=(theirs,))
    process.start()
    print(ours.recv(), workers.wanted())
    process.join()
"""
    assert _started(run_python, tmp_path, code, check=True).stdout.split() == ["False", "True"]


def test_a_cold_program_and_a_warm_one(run_python, tmp_path):
    """The cold one has workers compile and leaves none behind; the warm one starts none. Both compute the same."""
    code = """
print(work(1), workers._COMPILED[0] > 0)
"""
    cold = _started(run_python, tmp_path, code, check=True).stdout.split()
    warm = _started(run_python, tmp_path, code, check=True).stdout.split()
    assert cold == [warm[0], "True"]
    assert warm[1] == "False"


@pytest.mark.slow
def test_workers_begin_at_once_where_nothing_is_compiled(run_python, tmp_path):
    """The runtime and products are sent for with an empty cache, and never again."""
    code = """
import rushlight as torch
from rushlight._native import workers
sent = []
send = workers.send
workers.send = lambda key, opt, text, processor: (sent.append(text), send(key, opt, text, processor))
x = torch.ones(64, 64)
print(sum("@rl_gemm_f32(" in text for text in sent), sum("@rl_parallel_for(" in text for text in sent) > 0, (x @ x).sum().item())
"""
    env = {**os.environ, "RUSHLIGHT_CACHE_DIR": str(tmp_path / "cache"), "RUSHLIGHT_SHIPPED": "0"}
    env |= {"RUSHLIGHT_COMPILE_WORKERS": "1", "RUSHLIGHT_GEMM": "generated"}

    def printed(**more):
        return run_python("-c", code, env={**env, **more}, timeout=300, check=True).stdout.split()

    assert printed() == ["1", "True", "262144.0"]
    assert printed() == ["0", "False", "262144.0"]
    elsewhere = str(tmp_path / "another")
    assert printed(RUSHLIGHT_CACHE_DIR=elsewhere, RUSHLIGHT_COMPILE_WORKERS="0") == ["0", "False", "262144.0"]


def test_default_cache_is_what_obtain_looks_into():
    assert objectcode.default_cache is default_cache
    assert CACHE_DIR.get() == default_cache().root
