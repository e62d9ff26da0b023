"""Programs compiled ahead of time: the package, its loader, the shared library in a C program, and damaged files."""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import threading
import warnings
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

import rushlight as torch
from rushlight import nn
from rushlight._backends.cpu.ahead.library import usable_levels
from rushlight._base.errors import PackageError
from rushlight._packages.building import build
from rushlight._packages.loading import load
from rushlight._packages.package_file import FORMAT

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="packages are for Linux on x86-64"
)
FIXED = {"RUSHLIGHT_GEMM": "fixed", "RUSHLIGHT_BLAS_LIBRARY": "none"}


class Scores(nn.Module):
    """A lookup, products, a softmax, and results of several kinds."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.hidden = nn.Linear(32, 48)
        self.norm = nn.LayerNorm(48)
        self.out = nn.Linear(48, 10)

    def forward(self, ids, mask=None):
        h = self.norm(torch.relu(self.hidden(self.table(ids))) * mask)
        return {"scores": torch.softmax(self.out(h), -1), "ids": ids, "pair": (h.transpose(0, 1), mask.sum())}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Scores().eval()


@pytest.fixture(scope="module")
def arguments():
    torch.manual_seed(1)
    return torch.randint(0, 50, (16, 5)), torch.rand(16, 5, 1)


@pytest.fixture(scope="module")
def made(model, arguments):
    ids, mask = arguments
    return build(model, (ids,), {"mask": mask}, name="scores")


@pytest.fixture(scope="module")
def path(made, tmp_path_factory):
    return made.write(tmp_path_factory.mktemp("package") / "scores.rlp")


def _close(got, want):
    return float(np.abs(got - want).max()) <= 1e-5 * float(np.abs(want).max())


@pytest.mark.slow
def test_results_are_those_of_the_module(path, model, arguments):
    ids, mask = arguments
    loaded = torch._inductor.aoti_load_package(path)
    got, want = loaded(ids, mask=mask), model(ids, mask=mask)
    assert list(got) == ["scores", "ids", "pair"] and type(got["pair"]) is tuple
    assert _close(got["scores"].numpy(), want["scores"].detach().numpy())
    assert torch.equal(got["ids"], ids) and got["pair"][0].shape == (5, 16, 48) and got["pair"][1].shape == ()
    arrays = loaded(ids.numpy(), mask=mask.numpy())
    assert type(arrays["scores"]) is np.ndarray and (arrays["scores"] == got["scores"].numpy()).all()
    assert [name for name, _, _ in loaded.inputs] == ["ids", "mask"]


@pytest.mark.slow
def test_results_have_the_bits_of_eager_calls_with_the_same_products(path, tmp_path):
    """In a process with RUSHLIGHT_GEMM=fixed and without BLAS, as packages are made."""
    program = f"""
import rushlight as torch, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_packages import Scores
torch.manual_seed(0)
model = Scores().eval()
torch.manual_seed(1)
ids, mask = torch.randint(0, 50, (16, 5)), torch.rand(16, 5, 1)
got, want = torch._inductor.aoti_load_package({path!r})(ids, mask=mask), model(ids, mask=mask)
assert torch.equal(got["scores"], want["scores"])
assert torch.equal(got["pair"][0], want["pair"][0]) and torch.equal(got["pair"][1], want["pair"][1])
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, **FIXED}, timeout=60)


def test_loading_needs_neither_llvm_nor_an_engine(path):
    program = f"""
import sys
sys.modules["llvmlite"] = None
import numpy as np
from rushlight._packages.loading import load
loaded = load({path!r})
out = loaded(np.zeros((16, 5), np.int64), mask=np.ones((16, 5, 1), np.float32))
assert abs(float(out["scores"].sum()) - 80) < 1e-3
ours = {{name for name in sys.modules if name.startswith("rushlight.") and name.split(".")[1] in ("_engine", "_ops", "_native", "_backends", "_host")}}
print(sorted(name for name in ours if name.startswith("rushlight._backends.cpu.runtime.runtime")))
assert sys.modules["llvmlite"] is None
"""
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60).stdout
    assert out.strip() == "[]"


def test_wrong_arguments(path, arguments):
    ids, mask = arguments
    loaded = torch._inductor.aoti_load_package(path)
    with pytest.raises(TypeError, match="keyword arguments"):
        loaded(ids)
    with pytest.raises(TypeError, match="'ids' must be int64"):
        loaded(ids.int(), mask=mask)
    with pytest.raises(ValueError, match=r"'ids' must have the shape \[16, 5\], not \[3, 5\]"):
        loaded(ids[:3], mask=mask)
    wrong = ids.clone()
    wrong[3, 2] = 50
    with pytest.raises(IndexError, match="index 50 is out of bounds for dimension 0 with size 50"):
        loaded(wrong, mask=mask)
    with pytest.raises(ValueError, match="at least one thread"):
        loaded.set_threads(0)


def test_two_python_threads_call_one_package(path, arguments):
    ids, mask = (x.numpy() for x in arguments)
    loaded = load(path)
    want = loaded(ids, mask=mask)["scores"]
    wrong = []

    def work():
        for _ in range(50):
            if not (loaded(ids, mask=mask)["scores"] == want).all():
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_weights_of_convolutions_stay_packed_from_the_second_call_on(tmp_path):
    torch.manual_seed(3)
    layers = (
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 48, 3, stride=2),
        nn.Conv2d(48, 24, 1),
        nn.Flatten(),
    )
    net = nn.Sequential(*layers, nn.Linear(24 * 36, 80)).eval()
    x = torch.randn(2, 8, 14, 14)
    file = torch._inductor.aoti_compile_and_package(net, (x,), package_path=str(tmp_path / "net.rlp"))
    loaded = load(file)
    found: list[np.ndarray] = []

    def work():  # the first calls run side by side
        for _ in range(10):
            found.append(loaded(x.numpy()))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 30 and all((each == found[0]).all() for each in found)
    _close(found[0], net(x).detach().numpy())


def test_other_python_threads_run_during_a_call(tmp_path):
    """With the interpreter lock held, the counter would stand still from the beginning of the call to its end."""
    layers = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]).eval()
    x = np.zeros((512, 512), np.float32)
    path = build(layers, (torch.zeros(512, 512),), name="layers", levels=["x86-64-v3"]).write(tmp_path / "layers.rlp")
    loaded, count, seen, ended = load(path), [0], [], threading.Event()
    loaded.set_threads(1)

    def work():
        for _ in range(5):
            before = count[0]
            loaded.run([x.ctypes.data], [x.ctypes.data])
            seen.append(count[0] - before)
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not ended.is_set():
        count[0] += 1
    thread.join()
    assert max(seen) > 1000, seen


def test_a_child_process_calls_it_too(path, arguments):
    ids, mask = (x.numpy() for x in arguments)
    loaded = load(path)
    want = loaded(ids, mask=mask)["scores"]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # from 3.12 on Python warns of the library's threads, which the child does without
        child = os.fork()
    if child == 0:
        os._exit(0 if (loaded(ids, mask=mask)["scores"] == want).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_each_level_is_chosen_by_the_processor(made, tmp_path, arguments):
    ids, mask = (x.numpy() for x in arguments)
    assert [v.level for v in made.variants] == usable_levels()
    results = []
    for variant in made.variants:
        alone = made._replace(variants=[variant])
        loaded = load(alone.write(tmp_path / f"{variant.level}.rlp"))
        assert loaded.processor == variant.level
        results.append(loaded(ids, mask=mask)["scores"])
    assert all(_close(r, results[0]) for r in results)


@pytest.mark.slow
def test_routines_with_tables_dtypes_and_views(tmp_path):
    """Fourier transforms have tables of their own; named tuples come back as tuples; conjugates are resolved."""

    def function(x, z):
        return (
            torch.sort(x),
            torch.fft.rfft(x),
            z.conj(),
            z.real * 2,
            x[1:].t(),
            x,
            x.double().sum(0),
            x.half() @ x.half().T,
        )

    x, z = torch.randn(6, 20), torch.randn(4, 4, dtype=torch.complex64).conj()
    loaded = torch._inductor.aoti_load_package(build(function, (x, z), levels=["x86-64-v3"]).write(tmp_path / "x.rlp"))
    got, want = loaded(x, z), function(x, z)
    assert type(got[0]) is tuple and torch.equal(got[0][1], want[0].indices)
    leaves = [got[0][0], *got[1:]], [want[0].values, *want[1:]]
    for a, b in zip(*leaves, strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape
        assert float((a - b).abs().max()) <= 1e-3 * float(b.abs().max())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max:UserWarning")
def test_quantized_layers_and_the_command(tmp_path, capsys):
    """A statically quantized network, exported weights and all, by the command."""
    from rushlight._cli.package import main
    from rushlight.ao import quantization

    torch.manual_seed(0)
    network = nn.Sequential(
        quantization.QuantStub(),
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 5),
        quantization.DeQuantStub(),
    ).eval()
    network.qconfig = quantization.get_default_qconfig("x86")
    prepared, x = quantization.prepare(network), torch.randn(3, 1, 8, 8)
    prepared(x)
    quantized = quantization.convert(prepared)
    loaded = torch._inductor.aoti_load_package(build(quantized, (x,), levels=["x86-64-v3"]).write(tmp_path / "q.rlp"))
    assert torch.equal(loaded(x), quantized(x))
    program = torch.export.export(nn.Linear(4, 2).eval(), (torch.ones(3, 4),))
    torch.export.save(program, tmp_path / "line-1.pt2")
    assert main([str(tmp_path / "line-1.pt2"), "--levels", "x86-64-v3"]) == 0
    assert main(["--info", str(tmp_path / "line-1.rlp")]) == 0
    out = capsys.readouterr().out
    assert "line_1, runs code for x86-64-v3" in out and "input input: float32[3, 4]" in out
    assert main([str(tmp_path / "line-1.pt2"), "--library", str(tmp_path / "libline.so"), "--levels", "x86-64-v3"]) == 0
    assert "line_run(" in (tmp_path / "line.h").read_text()
    assert main([str(tmp_path / "line-1.rlp")]) == 1 and main(["--info", str(tmp_path / "none.rlp")]) == 1
    assert "rushlight package:" in capsys.readouterr().err


# ***** sizes that vary *****


class Lengths(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(8, 3)

    def forward(self, x, y):
        return self.scores(x).softmax(-1), torch.cat([x.sum(-1), y], 1).cumsum(1)


@pytest.fixture(scope="module")
def lengths():
    torch.manual_seed(0)
    return Lengths().eval()


@pytest.fixture(scope="module")
def sized(lengths, tmp_path_factory):
    batch, length = torch.export.Dim("batch", min=1, max=3), torch.export.Dim("length", min=2, max=5)
    shapes = ({0: batch, 1: length}, {0: batch, 1: 2 * length})
    program = torch.export.export(lengths, (torch.ones(2, 4, 8), torch.ones(2, 8)), dynamic_shapes=shapes)
    folder = tmp_path_factory.mktemp("sized")
    path = torch._inductor.aoti_compile_and_package(program, package_path=folder / "lengths.rlp")
    library = torch._inductor.aot_compile(
        program, None, options={"aot_inductor.output_path": str(folder / "liblengths.so")}
    )
    return path, library


@pytest.mark.slow
def test_every_choice_of_sizes_within_the_ranges(sized, lengths):
    loaded = torch._inductor.aoti_load_package(sized[0])
    for batch in (1, 2, 3):
        for length in (2, 3, 4, 5):
            x, y = torch.randn(batch, length, 8), torch.randn(batch, 2 * length)
            got, want = loaded(x, y), lengths(x, y)
            assert all(
                a.shape == b.shape and _close(a.numpy(), b.detach().numpy()) for a, b in zip(got, want, strict=True)
            )
    x, y = torch.ones(2, 4, 8), torch.ones(2, 8)
    with pytest.raises(ValueError, match="is from 1 to 3 in this package, not 4"):
        loaded(torch.ones(4, 4, 8), torch.ones(4, 8))
    with pytest.raises(ValueError, match=r"'y' must have the shape \[2, 8\], not \[2, 7\]"):
        loaded(x, torch.ones(2, 7))
    with pytest.raises(ValueError, match=r"'y' must have the shape \[2, \?\], not \[3, 8\]"):
        loaded(x, torch.ones(3, 8))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_c_program_chooses_sizes(sized, tmp_path):
    folder = Path(sized[1]).parent
    (tmp_path / "main.c").write_text(r"""
#include "lengths.h"
#include <stdio.h>
int main(void) {
    int64_t sizes[2] = {3, 5}, wrong[2] = {3, 6};
    static float x[3 * 5 * 8], y[3 * 10], scores[3 * 5 * 3], sums[3 * 15];
    const void *inputs[2] = {x, y};
    void *outputs[2] = {scores, sums};
    char text[99];
    for (int i = 0; i < 30; i++) y[i] = 1;
    if (lengths_run(sizes, inputs, outputs, text, 99) != LENGTHS_OK) return 1;
    printf("%ld %g\n", (long)lengths_output(sizes, 1)->shape[1], sums[14]);
    printf("%d %s\n", lengths_run(wrong, inputs, outputs, text, 99), text);
    printf("%d %s\n", lengths_run(NULL, inputs, outputs, text, 99), text);
    return 0;
}
""")
    subprocess.run(
        ["gcc", "-Wall", "-Werror", f"-I{folder}", "main.c", "-o", "main", f"-L{folder}", "-llengths"],
        cwd=tmp_path,
        check=True,
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    out = subprocess.run([tmp_path / "main"], check=True, env=environment, capture_output=True, text=True).stdout
    names = re.findall(r"size \d: (\w+), from", (folder / "lengths.h").read_text())
    assert out.splitlines() == ["15 10", f"9 the size {names[1]} is from 2 to 5, not 6", "9 no sizes were given"]


def test_sizes_without_an_end_are_refused(lengths):
    shapes = ({0: torch.export.Dim("batch")}, {0: torch.export.Dim("batch")})
    program = torch.export.export(lengths, (torch.ones(2, 4, 8), torch.ones(2, 8)), dynamic_shapes=shapes)
    with pytest.raises(RuntimeError, match="no greatest value"):
        torch._inductor.aoti_compile_and_package(program)


# ***** what cannot be packaged *****


def test_programs_that_cannot_leave_are_named():
    x = torch.ones(2, 4)
    with pytest.raises(RuntimeError, match="random numbers"):
        build(nn.Dropout(0.5).train(), (x,))
    norm = nn.BatchNorm1d(4).train()
    with pytest.raises(RuntimeError, match="writes to running_mean|writes to running_var|writes to num_batches"):
        torch._inductor.aoti_compile_and_package(norm, (x,))
    with pytest.raises(RuntimeError, match="writes to input 0"):
        build(lambda x: x.mul_(2), (torch.ones(3),))
    with pytest.raises(RuntimeError, match="not set"):
        build(lambda x: {"a": {1, 2}, "b": x}, (x,))
    with pytest.raises(RuntimeError, match="no name in C"):
        build(lambda x: x + 1, (x,), name="a b")
    with pytest.raises(RuntimeError, match="no code can be made here for x86-64-v9"):
        build(lambda x: x + 1, (x,), levels=["x86-64-v9"])
    with pytest.raises(TypeError, match="example arguments"):
        torch._inductor.aoti_compile_and_package(nn.Linear(1, 1))


# ***** the library *****

_C = r"""
#include "scores.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t ids[80];
static float mask[80];
static float sums[2];

static void *work(void *place) {
    char text[200];
    void *outputs[8];
    const void *inputs[2] = {ids, mask};
    for (int k = 0; k < scores_output_count(); k++) outputs[k] = malloc(scores_output(k)->bytes);
    for (int turn = 0; turn < 50; turn++)
        if (scores_run(inputs, outputs, text, sizeof text) != SCORES_OK) exit(3);
    *(float *)place = ((float *)outputs[0])[7];
    for (int k = 0; k < scores_output_count(); k++) free(outputs[k]);
    return NULL;
}

int main(void) {
    char text[200] = "";
    void *outputs[4] = {malloc(1 << 20), malloc(1 << 20), malloc(1 << 20), malloc(1 << 20)};
    const void *inputs[2] = {ids, mask};
    for (int i = 0; i < 80; i++) ids[i] = i % 50, mask[i] = 0.25f * (float)(i % 7);
    pthread_t threads[2];
    for (int k = 0; k < 2; k++) pthread_create(&threads[k], NULL, work, &sums[k]);
    for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
    printf("%s %d %.9g\n", scores_input(0)->name, memcmp(&sums[0], &sums[1], 4) == 0, sums[0]);
    ids[5] = 77;
    printf("%d ", scores_run(inputs, outputs, text, sizeof text));
    printf("%s\n", text);
    inputs[1] = NULL;
    printf("%d ", scores_run(inputs, outputs, text, sizeof text));
    printf("%s\n", text);
    printf("%d %d\n", scores_input(9) == NULL, scores_set_threads(0));
    return 0;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_c_program_on_two_threads(made, path, tmp_path):
    made.write_library(tmp_path / "libscores.so")
    (tmp_path / "main.c").write_text(_C)
    compile_ = ["gcc", "-Wall", "-Werror", "main.c", "-o", "main", "-L.", "-lscores", "-lpthread"]
    subprocess.run(compile_, cwd=tmp_path, check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    lines = subprocess.run(
        [tmp_path / "main"], check=True, env=environment, capture_output=True, text=True
    ).stdout.splitlines()
    ids = (np.arange(80) % 50).reshape(16, 5)
    mask = (0.25 * (np.arange(80) % 7)).astype(np.float32).reshape(16, 5, 1)
    name, same, value = lines[0].split()
    assert (name, same) == ("ids", "1")
    assert np.float32(value) == load(path)(ids, mask=mask)["scores"].reshape(-1)[7]
    assert lines[1:] == ["1 index 77 is out of bounds for dimension 0 with size 50", "6 input 1 has no memory", "1 6"]


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs binutils")
def test_the_library_needs_the_c_library_alone(made, tmp_path):
    library, _ = made.write_library(tmp_path / "libscores.so")
    dynamic = subprocess.run(["readelf", "-dW", library], check=True, capture_output=True, text=True)
    assert not dynamic.stderr
    needed = {line.split("[")[1].rstrip("]") for line in dynamic.stdout.splitlines() if "(NEEDED)" in line}
    assert needed <= {"libc.so.6", "libpthread.so.0"}
    symbols = subprocess.run(["readelf", "-sW", "--dyn-syms", library], check=True, capture_output=True, text=True)
    assert not symbols.stderr and "Py" not in symbols.stdout and "scores_run" in symbols.stdout
    segments = subprocess.run(["readelf", "-lW", library], check=True, capture_output=True, text=True).stdout
    assert "RWE" not in segments and "GNU_RELRO" in segments


def test_weights_come_once(made, model):
    nbytes = sum(p.numel() * 4 for p in model.parameters())
    assert nbytes <= len(made.weights) < nbytes + 64 * 16
    assert len(made.library()) - len(made.weights) < 1 << 20


# ***** damaged and hostile files *****


def _refused(data, place):
    place.write_bytes(data)
    with pytest.raises(PackageError) as caught:
        load(place)
    return str(caught.value)


def _with_index(data, change):
    """The package with another index, whose digest is right."""
    length = struct.unpack_from("<I", data, 12)[0]
    table = json.loads(data[48 : 48 + length])
    change(table)
    text = json.dumps(table).encode()
    assert 48 + len(text) <= 4096
    head = struct.pack("<8sII32s", data[:8], FORMAT, len(text), blake2b(text, digest_size=32).digest())
    return head + text + bytes(4096 - 48 - len(text)) + data[4096:]


def test_damaged_files_are_refused(path, tmp_path):
    data, place = Path(path).read_bytes(), tmp_path / "x.rlp"
    assert "too short" in _refused(b"", place)
    assert "too short" in _refused(data[:20], place)
    assert "no package" in _refused(b"PK\3\4" + data[4:], place)
    assert "has format 0, and this version of rushlight reads format 1" in _refused(
        data[:8] + bytes(4) + data[12:], place
    )
    assert "cut off" in _refused(data[:4097], place)
    changed = bytearray(data)
    changed[60] ^= 1
    assert "damaged" in _refused(bytes(changed), place)
    changed = bytearray(data)
    changed[-4096] ^= 1
    place.write_bytes(changed)
    with pytest.raises(RuntimeError, match="weights of the package are damaged"):
        load(place, verify_weights=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update(library=[4096, 1 << 40, t["library"][2]]),
        lambda t: t.update(library=[0, 10, t["library"][2]]),
        lambda t: t.update(weights=[t["library"][0], 64, t["weights"][2]]),
        lambda t: t.update(name="../x"),
        lambda t: t["inputs"].append(["y", "float32", [1]]),
        lambda t: t["inputs"][0].__setitem__(2, [-1, 5]),
        lambda t: t["inputs"][0].__setitem__(2, [1 << 40, 1 << 40]),
        lambda t: t["inputs"][0].__setitem__(2, [17, 5]),
        lambda t: t["inputs"][0].__setitem__(1, "object"),
        lambda t: t["outputs"][0].__setitem__(2, [16, 5, 9]),
        lambda t: t.update(out_tree=["dict", [["a", 7]]]),
        lambda t: t.update(in_trees=[0]),
        lambda t: t.pop("levels"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(path, tmp_path, change):
    _refused(_with_index(Path(path).read_bytes(), change), tmp_path / "x.rlp")


def test_changed_bytes_do_no_harm(path, tmp_path):
    """Bytes of the header, the index and the library: an error of ours, or the package as it was."""
    data, place = Path(path).read_bytes(), tmp_path / "x.rlp"
    rng = random.Random(0)
    refused = 0
    for _ in range(90):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(48 + 1500) if rng.random() < 0.7 else rng.randrange(len(data) - 30000)
            changed[at] = rng.randrange(256)
        place.write_bytes(bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.1 else changed))
        try:
            load(place)
        except PackageError:
            refused += 1
    assert refused > 60


def test_the_loader_takes_the_library_of_a_package_once(path):
    assert load(path)._library is load(path)._library
    assert ctypes.sizeof(ctypes.c_void_p) == 8
