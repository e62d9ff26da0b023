"""`python -m rushlight`: programs run under the name torch as they would under plain Python."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest

RUSHLIGHT = ("-m", "rushlight")


def write(folder: Path, text: str, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


# ***** the process that a program sees *****

SEES = """
import json, sys
main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "path0": sys.path[0], "name": __name__, "file": globals().get("__file__"), "spec": __spec__ is None,
    "package": __package__, "cached": globals().get("__cached__", "absent"), "main": main.__dict__ is globals(), "doc": __doc__,
}))
"""


def test_script_sees_what_python_shows(run_python, tmp_path: Path) -> None:
    path = write(tmp_path, '"""doc"""\n' + SEES)
    for given in (str(path), path.name):
        plain = run_python(given, "-a", "b c", cwd=tmp_path, check=True)
        ours = run_python(*RUSHLIGHT, given, "-a", "b c", cwd=tmp_path, check=True)
        assert ours.stdout == plain.stdout


def test_script_behind_a_link(run_python, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    write(tmp_path / "real", "x = 1", "neighbour.py")
    write(tmp_path / "real", "import neighbour; print(neighbour.x)" + SEES)
    (tmp_path / "link.py").symlink_to("real/program.py")
    plain = run_python("link.py", cwd=tmp_path, check=True)
    assert run_python(*RUSHLIGHT, "link.py", cwd=tmp_path, check=True).stdout == plain.stdout


def test_text_sees_what_python_shows(run_python, tmp_path: Path) -> None:
    plain = run_python("-c", SEES, "x", cwd=tmp_path, check=True)
    ours = run_python(*RUSHLIGHT, "-c", SEES, "x", cwd=tmp_path, check=True)
    assert ours.stdout.replace('"package": ""', '"package": null') == plain.stdout


def test_module_sees_what_python_shows(run_python, tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    write(tmp_path / "pack", "", "__init__.py")
    write(tmp_path / "pack", "import sys; print(sys.argv, __name__, __package__, __spec__.name)", "__main__.py")
    write(tmp_path / "pack", "import sys; print(sys.argv, __name__, __package__, __spec__.name)", "tool.py")
    for name in ("pack", "pack.tool"):
        plain = run_python("-m", name, "x", cwd=tmp_path, check=True)
        ours = run_python(*RUSHLIGHT, "-m", name, "x", cwd=tmp_path, check=True)
        assert ours.stdout.split("]")[0] == plain.stdout.split("]")[0]
        assert ours.stdout.split("]")[1].split()[:2] == plain.stdout.split("]")[1].split()[:2]


def test_folder_and_standard_input(run_python, tmp_path: Path) -> None:
    write(tmp_path, "import other; print(other.x, __name__)", "__main__.py")
    write(tmp_path, "x = 5", "other.py")
    assert run_python(*RUSHLIGHT, str(tmp_path), check=True).stdout == "5 __main__\n"
    assert run_python(*RUSHLIGHT, "-", "a", input="import sys; print(sys.argv)", check=True).stdout == "['-', 'a']\n"


def test_leaves_no_bytecode_of_the_script(run_python, tmp_path: Path) -> None:
    path = write(tmp_path, "print(1)")
    run_python(*RUSHLIGHT, str(path), check=True)
    assert [p.name for p in tmp_path.iterdir()] == ["program.py"]


# ***** torch is rushlight *****


def test_torch_is_rushlight(run_python, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
import torch, sys
import torch.nn as nn
import torch.nn.functional as F
from torch import nn as nn2
from torch.nn import functional as F2, Module
from torch.utils.data import DataLoader, Dataset
import torch.utils.data
import rushlight, rushlight.nn.functional
assert torch is rushlight and torch.nn is nn is nn2 is rushlight.nn
assert F is F2 is rushlight.nn.functional is sys.modules["torch.nn.functional"]
assert torch.utils.data.DataLoader is DataLoader
assert rushlight.nn.__spec__.name == "rushlight.nn" and torch.__name__ == "torch" and torch.nn.functional.__name__ == "torch.nn.functional"
try:
    import torch.nothing
except ImportError:
    pass
print(torch.tensor([1.0, 2.0]) + 1)
""",
    )
    assert run_python(*RUSHLIGHT, str(path), check=True).stdout == "tensor([2., 3.])\n"


def test_import_rushlight_makes_no_torch(run_python) -> None:
    code = "import sys, rushlight; print(any(type(f).__module__.startswith('rushlight') for f in sys.meta_path), 'torch' in sys.modules)"
    assert run_python("-c", code, check=True).stdout == "False False\n"


# (what a program asks for, the error, its words)
MISSING = [
    ("import torch\ntorch.not_there", "AttributeError", "module 'torch' has no attribute 'not_there'\n"),
    (
        "import torch\ntorch.nn.Linaer",
        "AttributeError",
        "module 'torch.nn' has no attribute 'Linaer'. Did you mean: 'Linear'?",
    ),
    ("import torch\ntorch.contrib", "AttributeError", "rushlight has no 'contrib' yet"),
    (
        "import torch\ntorch.nn.functional.not_there(1)",
        "AttributeError",
        "module 'torch.nn.functional' has no attribute 'not_there'\n",
    ),
    (
        "import torch.not_there",
        "ModuleNotFoundError",
        "No module named 'torch.not_there', neither in rushlight nor in PyTorch\n",
    ),
    (
        "import torch.optm",
        "ModuleNotFoundError",
        "No module named 'torch.optm', neither in rushlight nor in PyTorch. Did you mean: 'optim'?",
    ),
    ("import torch.contrib", "ModuleNotFoundError", "rushlight has no 'contrib' yet (asked for as 'torch.contrib')"),
    ("import torch.nn.not_there.deep as d", "ModuleNotFoundError", "No module named 'torch.nn.not_there'"),
    ("from torch.not_there import x", "ModuleNotFoundError", "No module named 'torch.not_there'"),
    ("from torch import sofmax", "ImportError", "module 'torch' has no attribute 'sofmax'. Did you mean: 'softmax'?"),
    ("from torch import contrib", "ImportError", "rushlight has no 'contrib' yet"),
    ("import torch._strobelight", "ModuleNotFoundError", "rushlight has no '_strobelight'"),
    ("import torch.utils.bundled_inputs", "ModuleNotFoundError", "rushlight has no 'utils.bundled_inputs' yet"),
    ("import torch.fft.deep", "ModuleNotFoundError", "No module named 'torch.fft.deep'"),
    (
        "import functorch.not_there",
        "ModuleNotFoundError",
        "No module named 'functorch.not_there', neither in rushlight nor in PyTorch",
    ),
    ("import triton.not_there", "ModuleNotFoundError", "rushlight's Triton language has no such page"),
    ("import not_there_at_all", "ModuleNotFoundError", "No module named 'not_there_at_all'"),
]
ASKS = """
import runpy, sys
for number in range(int(sys.argv[1])):
    try:
        runpy.run_path(f"missing{number}.py")
    except Exception:
        sys.excepthook(*sys.exc_info())
    print("end of", number, file=sys.stderr)
"""


def test_missing_names(run_python, tmp_path: Path) -> None:
    """Each in a file of its own; all that need not end a program in one process."""
    ends = [row for row in MISSING if row[0].startswith("from torch import ")]  # how such a program ends says more
    rows = [row for row in MISSING if row not in ends]
    for number, (code, _, _) in enumerate(rows):
        write(tmp_path, code + "\n", f"missing{number}.py")
    done = run_python(*RUSHLIGHT, str(write(tmp_path, ASKS)), str(len(rows)), cwd=tmp_path, check=True)
    rest = done.stderr
    for number, (code, kind, says) in enumerate(rows):
        text, _, rest = rest.partition(f"end of {number}\n")
        assert kind in text and says in text, f"{code}:\n{text}"
    for code, kind, says in (rows[0], *ends):
        alone = run_python(*RUSHLIGHT, str(write(tmp_path, code + "\n")))
        assert alone.returncode == 1 and kind in alone.stderr and says in alone.stderr


def test_a_package_without_its_compiled_part_is_told_so(run_python, tmp_path: Path) -> None:
    """As `import torchvision` ends where its `_C.so` is missing: it registers rules for operators that nobody defined."""
    (tmp_path / "vision").mkdir()
    write(tmp_path / "vision", "import torch\ntorch.library.register_fake('vision::nms')(lambda x: x)\n", "__init__.py")
    done = run_python(*RUSHLIGHT, str(write(tmp_path, "import vision")))
    assert (
        "RuntimeError: operator vision::nms does not exist: " in done.stderr
        and "vision/_C.so) was not found" in done.stderr
    )


def test_missing_names_are_ordinary_errors(run_python, tmp_path: Path) -> None:
    code = """
import importlib.util
import torch
assert not hasattr(torch, "not_there") and getattr(torch.nn, "not_there", 3) == 3
assert importlib.util.find_spec("torch") is not None
for name in ("torch.not_there", "torch.nn.not_there", "torch._not_there", "functorch.not_there"):
    assert importlib.util.find_spec(name) is None
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        assert error.name == name and "rushlight" in str(error)
    else:
        raise AssertionError(name)
try:
    from torch import not_there
except ImportError as error:
    assert "not_there" in str(error)
"""
    run_python(*RUSHLIGHT, str(write(tmp_path, code)), check=True)


# ***** who else asks for torch *****


def test_metadata_and_versions(run_python, tmp_path: Path) -> None:
    """Before and after `import torch`; rushlight's own version stays what it is."""
    code = """
import importlib.metadata as metadata, importlib.util
from packaging.version import Version

def ask():
    assert Version(metadata.version("torch")) >= Version("2.13") and metadata.version("torch").endswith("+rushlight")
    assert metadata.distribution("torch").metadata["Name"] == "torch" and "torch" in metadata.packages_distributions()
    assert importlib.util.find_spec("torch") and importlib.util.find_spec("torch.nn") and importlib.util.find_spec("torch.nothing") is None

ask()
import torch, torch.version, rushlight
ask()
assert torch.__version__ == torch.version.__version__ == metadata.version("torch") and Version(torch.__version__).release[:2] == (2, 13)
assert torch.__version__ >= (2, 0) and torch.torch is torch
assert torch.version.rushlight == OWN and torch.version.cuda is None and torch.__config__.show().startswith(f"rushlight {OWN}")
"""
    import rushlight

    run_python(*RUSHLIGHT, str(write(tmp_path, f"OWN = {str(rushlight.__version__)!r}\n" + code)), check=True)
    assert (
        run_python(
            "-c", "import rushlight; print(rushlight.__version__, rushlight.version.rushlight)", check=True
        ).stdout.split()[0]
        != "2.13.0+rushlight"
    )


def test_the_metadata_say_the_same_version() -> None:
    from rushlight._base.alias import FOLDER, LEVEL

    (written,) = Path(FOLDER).glob("*.dist-info")
    assert written.name == f"torch-{LEVEL}.dist-info"
    assert f"Version: {LEVEL}" in (written / "METADATA").read_text().splitlines()


def test_looking_inside(run_python, tmp_path: Path) -> None:
    code = """
import inspect, os, pkgutil, sys
import torch, torch._C, torch.nn.modules.linear
assert os.path.basename(torch.__file__) == "__init__.py" and torch.__spec__ is not None and torch.__name__ == "torch"
assert str(torch.Tensor) == "<class 'torch.Tensor'>" and str(torch.nn.Linear) == "<class 'torch.nn.modules.linear.Linear'>"
assert str(torch.Size) == "<class 'torch.Size'>" and str(torch.dtype) == "<class 'torch.dtype'>" and str(torch.device) == "<class 'torch.device'>"
assert "class Identity" in inspect.getsource(torch.nn.Identity) and inspect.getmodule(torch.nn.Linear) is sys.modules["torch.nn.modules.linear"]
assert inspect.getsource(torch.nn) and inspect.signature(torch.nn.Linear).parameters["bias"].default is True
names = [found.name for found in pkgutil.iter_modules(torch.__path__, "torch.")]
assert {"torch.nn", "torch.optim", "torch.utils"} <= set(names)
walked = [found.name for found in pkgutil.walk_packages(torch.nn.__path__, "torch.nn.")]
assert "torch.nn.modules.conv" in walked
assert [name for name, value in vars(torch.optim).items() if isinstance(value, type) and issubclass(value, torch.optim.Optimizer)]
"""
    run_python(*RUSHLIGHT, str(write(tmp_path, code)), check=True)


CHILDREN = """
import multiprocessing, subprocess, sys
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        import torch, rushlight
        assert torch is rushlight
        return torch.tensor(float(index))

def double(queue):
    import torch, rushlight
    queue.put((torch is rushlight, str(torch.__version__), (torch.ones(2) * 2).tolist()))

if __name__ == "__main__":
    code = "import importlib.metadata as m; print(m.version('torch')); import torch.nn.functional as F, torch, rushlight; print(torch is rushlight, F.__name__)"
    print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    child = spawn.Process(target=double, args=(queue,))
    child.start()
    print(queue.get(timeout=60))
    child.join()
    print(torch.cat(list(DataLoader(Rows(), 2, num_workers=1, multiprocessing_context="spawn"))).tolist())
"""
FOUND = [
    "['2.13.0+rushlight', 'True', 'torch.nn.functional']",
    "(True, '2.13.0+rushlight', [2.0, 2.0])",
    "[0.0, 1.0, 2.0, 3.0]",
]


def test_children_find_it_too(run_python, tmp_path: Path) -> None:
    assert run_python(*RUSHLIGHT, str(write(tmp_path, CHILDREN)), check=True).stdout.splitlines() == FOUND


def test_install_as_torch(run_python, tmp_path: Path) -> None:
    """The same inside a process, which may keep it from its children."""
    code = "import rushlight\nrushlight.install_as_torch()\nrushlight.install_as_torch()\n" + CHILDREN
    assert run_python(str(write(tmp_path, code)), check=True).stdout.splitlines() == FOUND
    alone = "import os, rushlight; rushlight.install_as_torch(children=False); import torch; print(torch is rushlight, 'as_torch' in os.environ.get('PYTHONPATH', ''))"
    assert run_python("-c", alone, check=True).stdout == "True False\n"


def test_install_as_torch_is_too_late(run_python, tmp_path: Path) -> None:
    """Where another torch is imported already, half the program would hold its tensors."""
    (tmp_path / "torch").mkdir()
    write(tmp_path / "torch", "", "__init__.py")
    done = run_python("-c", "import torch, rushlight; rushlight.install_as_torch()", cwd=tmp_path)
    assert done.returncode == 1 and "RuntimeError: PyTorch is already imported in this process" in done.stderr


def test_pytest_with_workers(run_python, tmp_path: Path) -> None:
    write(
        tmp_path,
        "import torch, rushlight\n\ndef test_same():\n    assert torch is rushlight and torch.ones(2).sum() == 2\n",
        "test_it.py",
    )
    done = run_python(*RUSHLIGHT, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1", "test_it.py", cwd=tmp_path)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def test_modules_of_torch_run(run_python) -> None:
    assert "rushlight" in run_python(*RUSHLIGHT, "-m", "torch.utils.collect_env", check=True).stdout


# ***** pickles *****

# What real PyTorch 2.13 pickles of the objects that `LOOKS` describes, compressed.
PICKLED = (
    r"""c-qxePfrs;6z{f6+Y~{BsF51u$<#{&#SnXfi0Ne&6{6|IOs2cj?#OhfJ2P8S5|VlV!EEAz@#ev!AH%QXM=&wbH{GRBK<{pL_Ro92d4GQIy&2k{%lXXc+SirXQaZk-"""
    r"""xN!X{iWFs1$MZ;#Rz#VH6bU33s9)130G&x-5?;7NbUcR`#~x}6-bJl}A`(zf7OYHWnEhB{zrHkn-hcP)<(=v<`}{`^p8H{@(wqaoJ;4=sIYWISB;`S90iZbp8b+031d+g_I0&;x%@P"""
    r"""RJphu9Tdqjr0{m`y7r$8uuE>t+>WScqoqk#(Zj@`744IXsDf@4P!_^dPw2AqT(X53K<r3M79wi96~w3@SksXtn+)$5OID@!ZOwWTnz>-"""
    r"""M5B=j1n4Xukq$Z^O)0SPNHEM$>D!29I^PVGUt@UDpSCOFJ1S=VTAHV>!7)eH>2%2aLE1C;-~0UkHx~;ytCV0wy1BX$5;?tEc_!xtjE_z+Iw<0E}-"""
    r"""}{KCfX|C{gHYJIsj!MF8Sz7s6)ZH>A9zIMv3b)d~U_OGYh9gV&|7#62IlNG#20qMBVHX$vq0*SG0ay?Vo+vfMgR0(QjY{&UF7hSAOAr_J$aD5yEgh|A(G}Vgp3=en&!;}If5fn4Jhf"""
    r"""Q^%xTr%EN-+Q*&yt`X@lr1y=~I_z|H1eZkU8Ka(dV$|>9}axKvB~%1+a;gGMx|?(;42-"""
    r"""@on@5gYy<6jVMUEYXicRBWuRSp|NHQ!lH4wK~Qa{V9d1NFd22Z7cn5FJcc9^S;YYCr<vJX<k@S}ukW=vPl`%l8qlDlk09xBvr16LMbwJg?ewRN0v@2A=|~CZj5^gJNtFHsfuR<5cXq"""
    r"""LWmKOy1obO0IDrkKDOm$v-3sH&M5o42Ty&2CUDBvah;-"""
    r"""nPqQspDFuXBpHdjWyjE*?naVi;R5#mtW}7sI@FS#yPt8%RPC3G!g<C$`@_uefM?F*$qxfhb=_a5?Frh|+?ZdK75TV;FkwIBG@JKiUy0Jp"""
)
LOOKS = """
import pickle, pickletools, torch
from torch.nn import functional as F

def made():
    return {
        "t": torch.arange(6.0).reshape(2, 3).t(), "p": torch.nn.Parameter(torch.tensor([1.5])), "dtype": torch.float16, "size": torch.Size([1, 2]),
        "format": torch.channels_last, "layout": torch.strided, "device": torch.device("cpu"), "add": torch.add, "relu": F.relu,
        "module": torch.nn.ReLU(),
    }

def looks(found):
    assert found["t"].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] and found["t"].stride() == (1, 3)
    assert type(found["p"]) is torch.nn.Parameter and found["p"].requires_grad and found["p"].item() == 1.5
    assert found["dtype"] is torch.float16 and found["size"] == torch.Size([1, 2]) and found["format"] == torch.channels_last
    assert found["layout"] == torch.strided and found["device"] == torch.device("cpu")
    assert found["add"](torch.ones(1), 1).item() == 2 and found["relu"] is F.relu and type(found["module"]) is torch.nn.ReLU
"""


def test_pickles_of_pytorch_are_read(run_python, tmp_path: Path) -> None:
    code = f"{LOOKS}\nimport base64, zlib\nlooks(pickle.loads(zlib.decompress(base64.b85decode({PICKLED!r}))))\n"
    run_python(*RUSHLIGHT, str(write(tmp_path, code)), check=True)


def test_pickles_name_what_pytorch_names(run_python, tmp_path: Path) -> None:
    """No name of ours is in them; what is written is read here again, by name and in copies."""
    code = """
import copy
data = pickle.dumps(made())
assert not any(isinstance(text, str) and "rushlight" in text for _, text, _ in pickletools.genops(data))
looks(pickle.loads(data))
looks(copy.deepcopy(made()))
whole = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
again = pickle.loads(pickle.dumps(whole))
assert torch.equal(again[0].weight, whole[0].weight) and b"rushlight" not in pickle.dumps(whole)
optimizer = torch.optim.SGD(whole.parameters(), lr=0.5, momentum=0.9)
assert pickle.loads(pickle.dumps(optimizer)).param_groups[0]["lr"] == 0.5
"""
    run_python(*RUSHLIGHT, str(write(tmp_path, LOOKS + code)), check=True)


@pytest.mark.oracle
def test_pytorch_reads_our_pickles(run_python, tmp_path: Path) -> None:
    path = tmp_path / "ours.pkl"
    run_python(*RUSHLIGHT, "-c", f"{LOOKS}\npickle.dump(made(), open({str(path)!r}, 'wb'))", check=True)
    run_python(
        "-W",
        "ignore",
        "-c",
        f"{LOOKS}\nassert 'rushlight' not in torch.__version__\nlooks(pickle.load(open({str(path)!r}, 'rb')))",
        check=True,
    )


# Objects whose classes live in inner rooms here.
INNER = """
import pickle, pickletools, torch

def made():
    generator = torch.Generator().manual_seed(3)
    torch.rand(2, generator=generator)
    layer = torch.nn.Linear(2, 2)
    layer.handle = layer.register_forward_hook(dict)
    return {
        "generator": generator, "coo": torch.eye(2).to_sparse(), "csr": torch.eye(2).to_sparse_csr(), "scheme": torch.per_tensor_affine,
        "quantized": torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.5, 1, torch.qint8), "layer": layer, "mode": torch.no_grad(),
        "nested": torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
    }

def looks(found):
    expected = torch.Generator().manual_seed(3)
    torch.rand(2, generator=expected)
    assert found["generator"].initial_seed() == 3 and torch.equal(torch.rand(2, generator=found["generator"]), torch.rand(2, generator=expected))
    assert found["coo"].layout == torch.sparse_coo and found["coo"].to_dense().tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert found["csr"].layout == torch.sparse_csr and found["csr"].to_dense().tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert found["scheme"] is torch.per_tensor_affine and found["quantized"].int_repr().tolist() == [3, 5] and found["quantized"].q_scale() == 0.5
    assert found["layer"].handle.id in found["layer"]._forward_hooks and type(found["mode"]) is torch.no_grad
    assert [t.tolist() for t in found["nested"].unbind()] == [[1.0], [1.0, 1.0]]
"""


def test_pickles_of_inner_classes_name_what_pytorch_names(run_python, tmp_path: Path) -> None:
    code = """
data = pickle.dumps(made())
assert not any(isinstance(text, str) and "rushlight" in text for _, text, _ in pickletools.genops(data))
looks(pickle.loads(data))
"""
    run_python(*RUSHLIGHT, str(write(tmp_path, INNER + code)), check=True)


@pytest.mark.slow
@pytest.mark.oracle
def test_pickles_of_inner_classes_go_both_ways(run_python, tmp_path: Path) -> None:
    for writer, reader in ((RUSHLIGHT, ("-W", "ignore")), (("-W", "ignore"), RUSHLIGHT)):
        path = tmp_path / "objects.pkl"
        run_python(*writer, "-c", f"{INNER}\npickle.dump(made(), open({str(path)!r}, 'wb'))", check=True)
        run_python(*reader, "-c", f"{INNER}\nlooks(pickle.load(open({str(path)!r}, 'rb')))", check=True)


FUNCTIONS = """
import functools, pickle, torch
from torch.nn import functional as F

NAMES = '''
    Tensor.add Tensor.add_ Tensor.__add__ Tensor.__getitem__ Tensor.relu Tensor.sum Tensor.view Tensor.to Tensor.cpu Tensor.item Tensor.detach Tensor.float
    Tensor.new_tensor Tensor.norm Tensor.split Tensor.softmax Tensor.backward Tensor.register_hook
    relu matmul cat zeros tensor save load no_grad vmap is_tensor manual_seed
    nn.functional.dropout nn.functional.gelu nn.functional.softmax nn.functional.log_softmax nn.functional.linear nn.functional.interpolate
    nn.functional.one_hot nn.functional.batch_norm nn.functional.scaled_dot_product_attention nn.functional.logsigmoid nn.functional.ctc_loss
    nn.init.normal_ nn.utils.clip_grad_norm_ linalg.norm linalg.svd fft.fft special.erf sparse.mm autograd.grad autograd.Function func.grad hub.load
    utils.data.default_collate utils.checkpoint.checkpoint
'''.split()

def made():
    found = {name: functools.reduce(getattr, name.split("."), torch) for name in NAMES}
    return {**found, "part": functools.partial(F.dropout, p=0.25), "bound": torch.ones(2).add, "layer": torch.nn.TransformerEncoderLayer(2, 1, activation=F.gelu)}

def looks(found):
    for name in NAMES:
        assert found[name] == functools.reduce(getattr, name.split("."), torch), name
    assert found["part"].func is F.dropout and found["bound"](1).tolist() == [2.0, 2.0] and found["layer"].activation is F.gelu
"""


@pytest.mark.parametrize("protocol", [2, 4])
def test_pickles_of_functions_and_methods(run_python, tmp_path: Path, protocol: int) -> None:
    code = f"data = pickle.dumps(made(), {protocol})\nassert b'rushlight' not in data\nlooks(pickle.loads(data))\n"
    run_python(*RUSHLIGHT, str(write(tmp_path, FUNCTIONS + code)), check=True)
    ours = FUNCTIONS.replace(
        "import functools, pickle, torch", "import functools, pickle\nimport rushlight as torch"
    ).replace("torch.nn import", "rushlight.nn import")
    run_python("-c", f"{ours}\nlooks(pickle.loads(pickle.dumps(made(), {protocol})))", check=True)


@pytest.mark.slow
@pytest.mark.oracle
def test_pickles_of_functions_go_both_ways(run_python, tmp_path: Path) -> None:
    for writer, reader in ((RUSHLIGHT, ("-W", "ignore")), (("-W", "ignore"), RUSHLIGHT)):
        path = tmp_path / "functions.pkl"
        run_python(*writer, "-c", f"{FUNCTIONS}\npickle.dump(made(), open({str(path)!r}, 'wb'))", check=True)
        run_python(*reader, "-c", f"{FUNCTIONS}\nlooks(pickle.load(open({str(path)!r}, 'rb')))", check=True)


# ***** compilers that do nothing *****


def test_eager_is_eager() -> None:
    import rushlight as torch

    net = torch.nn.Linear(2, 2)
    assert torch.compile(net, disable=True) is net
    compiled = torch.compile(net, backend="eager")
    assert torch.equal(compiled(torch.ones(1, 2)), net(torch.ones(1, 2))) and list(compiled.state_dict()) == [
        "_orig_mod.weight",
        "_orig_mod.bias",
    ]
    assert compiled.in_features == 2 and isinstance(compiled, torch._dynamo.OptimizedModule)
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(torch.compile(net, backend="eager")(torch.ones(1, 2)), net(torch.ones(1, 2)))
    assert not (
        torch.compiler.is_compiling()
        or torch.jit.is_scripting()
        or torch.jit.is_tracing()
        or torch.distributed.is_initialized()
    )


COMPILED = """
import torch, torch.distributed as dist
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
parallelize_module(net, dist.init_device_mesh("cpu", (1,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
x = torch.ones(2, 4, requires_grad=True)
expected = net(x).sum()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)

@torch.compile(fullgraph=True)
def step(x):
    total = net(x).sum()
    dist.all_reduce(total)
    return total

made = step(x)
made.backward()
optimizer.step()
print(made.item() == expected.item(), x.grad.shape)
"""


def test_spread_tensors_compile_under_the_name_torch(run_python, tmp_path: Path) -> None:
    """Code of the package is known as such by whatever name its modules are shown."""
    ran = run_python(*RUSHLIGHT, write(tmp_path, COMPILED).name, cwd=tmp_path, check=True)
    assert ran.stdout == "True torch.Size([2, 4])\n"


def test_marks_for_a_compiler_are_marks() -> None:
    import rushlight as torch

    @torch.jit.script
    def double(x):
        return x * 2

    assert (
        isinstance(double, torch.jit.ScriptFunction)
        and torch.equal(double(torch.ones(2)), 2 * torch.ones(2))
        and double.name == "double"
    )
    assert "aten::mul" in str(double.graph)
    for mark in (
        torch.jit.ignore,
        torch.jit.unused,
        torch.jit.export,
        torch.jit.interface,
        torch.compiler.allow_in_graph,
    ):

        def marked() -> None: ...

        assert mark(marked) is marked
    assert torch.jit.isinstance({"a": [1]}, dict[str, list[int]]) and not torch.jit.isinstance(
        (1, "a"), tuple[int, int]
    )
    assert torch.jit.wait(torch.jit.fork(lambda: 5)) == 5 and not isinstance(double, torch.jit.ScriptModule)


# ***** how a program ends *****


def test_traceback_begins_in_the_script(run_python, tmp_path: Path) -> None:
    path = write(tmp_path, "def f(x):\n    return 1 / x\n\n\nf(0)\n")
    plain = run_python(str(path))
    ours = run_python(*RUSHLIGHT, str(path))
    assert ours.returncode == plain.returncode == 1
    assert ours.stderr == plain.stderr


def test_syntax_error_shows_the_script(run_python, tmp_path: Path) -> None:
    path = write(tmp_path, "x = (1\ny = 2\n")
    plain = run_python(str(path))
    ours = run_python(*RUSHLIGHT, str(path))
    assert ours.returncode == 1
    assert ours.stderr.replace("Traceback (most recent call last):\n", "") == plain.stderr


@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(7)", 7), ("import sys; sys.exit()", 0), ("raise SystemExit('no')", 1)]
)
def test_exit_status(run_python, tmp_path: Path, code: str, status: int) -> None:
    done = run_python(*RUSHLIGHT, str(write(tmp_path, code)))
    assert done.returncode == status and "Traceback" not in done.stderr


def test_no_such_script(run_python, tmp_path: Path) -> None:
    done = run_python(*RUSHLIGHT, "nowhere.py", cwd=tmp_path)
    assert done.returncode == 2 and "can't open file" in done.stderr and "nowhere.py" in done.stderr


def interrupt_when(argv: list[str], line: str, **kwargs) -> tuple[int, str]:
    """Start a child, send Ctrl-C once it has printed `line`, and return its status and standard error."""
    held = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background jobs start with it ignored, and hand that on
    try:
        child = subprocess.Popen(
            [sys.executable, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs
        )
    finally:
        signal.signal(signal.SIGINT, held)
    assert child.stdout is not None
    for text in child.stdout:
        if line in text:
            break
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    return child.returncode, errors


def test_interrupted_script(tmp_path: Path) -> None:
    path = write(tmp_path, "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    status, errors = interrupt_when(["-m", "rushlight", str(path)], "ready")
    assert status == 130 and "KeyboardInterrupt" in errors and str(path) in errors and "runner.py" not in errors


def test_interrupted_demo_has_no_traceback(tmp_path: Path) -> None:
    argv = ["-m", "rushlight", "demo", "--out", str(tmp_path / "out")]
    status, errors = interrupt_when(argv, "parameters")
    assert status == 130 and "Traceback" not in errors and "interrupted" in errors


# ***** the other commands *****


def test_help_and_version(run_python) -> None:
    import rushlight

    assert run_python(*RUSHLIGHT, "--version", check=True).stdout == f"rushlight {rushlight.__version__}\n"
    assert "SCRIPT" in run_python(*RUSHLIGHT, "--help", check=True).stdout
    assert run_python(*RUSHLIGHT, check=True).stdout == run_python(*RUSHLIGHT, "-h", check=True).stdout
    for wrong in (["--nonsense"], ["-m"], ["-c"]):
        done = run_python(*RUSHLIGHT, *wrong)
        assert done.returncode == 2 and "usage" in done.stderr


def test_info_tells_everything(run_python) -> None:
    import llvmlite
    import numpy

    text = run_python(*RUSHLIGHT, "info", check=True).stdout
    for word in (
        "rushlight",
        "Python",
        numpy.__version__,
        llvmlite.__version__,
        "LLVM",
        "cores",
        "threads",
        "cache",
        "RUSHLIGHT_LOG",
    ):
        assert word in text, word
    assert f"{len(os.sched_getaffinity(0))} " in text


def test_the_package_functorch(run_python, tmp_path: Path) -> None:
    program = """
        import functorch, torch, warnings
        from functorch import FunctionalModule, make_functional_with_buffers, combine_state_for_ensemble
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            nets = [torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).eval() for _ in range(2)]
            run, parameters, buffers = make_functional_with_buffers(nets[0])
            x = torch.randn(4, 2)
            assert torch.equal(run(parameters, buffers, x), nets[0](x)) and [p.shape for p in parameters] == [p.shape for p in nets[0].parameters()]
            both, stacked, stacked_buffers = combine_state_for_ensemble(nets)
            made = functorch.vmap(both, in_dims=(0, 0, None))(stacked, stacked_buffers, x)
            torch.testing.assert_close(made, torch.stack([net(x) for net in nets]))
        assert {w.category for w in seen} == {FutureWarning} and functorch.grad(torch.sin)(torch.tensor(0.0)) == 1
        assert functorch.make_fx(torch.sin)(torch.ones(2)).graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
    """
    run_python(*RUSHLIGHT, str(write(tmp_path, textwrap.dedent(program))), check=True)


def test_overrides_are_shown_functions_of_torch_as_pytorch_shows_them(run_python, tmp_path: Path) -> None:
    """What is required by place, all else by name: also where the functions say that they come from torch."""
    program = """
        import torch
        from torch import fx, nn
        from torch.nn import functional as F

        class Flat(fx.Tracer):
            def is_leaf_module(self, module, name):
                return False

        traced = fx.symbolic_trace(lambda x: F.max_pool2d(F.dropout(F.relu(x), 0.3), 2))
        print([(node.args[1:], dict(node.kwargs)) for node in traced.graph.nodes if node.op == "call_function"])
        graph = Flat().trace(nn.Sequential(nn.ReLU(), nn.ELU()))
        print([(node.target.__module__, dict(node.kwargs)) for node in graph.nodes if node.op == "call_function"])
    """
    found = run_python(*RUSHLIGHT, "-c", textwrap.dedent(program), cwd=tmp_path, check=True).stdout.splitlines()
    pool = {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False, "return_indices": False}
    assert found[0] == repr(
        [((), {"inplace": False}), ((), {"p": 0.3, "training": True, "inplace": False}), ((2,), pool)]
    )
    page = "torch.nn.functional"
    assert found[1] == repr([(page, {"inplace": False}), (page, {"alpha": 1.0, "inplace": False})])


def test_modules_whose_names_are_on_one_page_here(run_python) -> None:
    program = """
        import torch
        from torch.cuda.amp.grad_scaler import GradScaler
        from torch.profiler.profiler import profile
        from torch.utils.benchmark.utils.timer import Timer
        import torch.utils.benchmark.utils.common
        assert GradScaler is torch.cuda.amp.GradScaler and profile is torch.profiler.profile and Timer is torch.utils.benchmark.Timer
        assert torch.utils.benchmark.utils.common.Measurement is torch.utils.benchmark.Measurement
    """
    run_python(*RUSHLIGHT, "-c", textwrap.dedent(program), check=True)


@pytest.mark.oracle
def test_every_public_module_of_pytorch_loads_or_is_named(run_python) -> None:
    done = run_python(str(Path(__file__).parents[1] / "tools" / "sweeps" / "module_sweep.py"))
    assert done.returncode == 0, done.stdout


def wheel_that_needs(tmp_path: Path, requirement: str) -> Path:
    """A wheel of one module that says that it needs a version of torch."""
    path = tmp_path / "needs_torch-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("needs_torch.py", "import torch\nprint(torch.__version__, torch.ones(2).sum().item())\n")
        wheel.writestr(
            "needs_torch-1.0.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: needs-torch\nVersion: 1.0\nRequires-Dist: torch {requirement}\n",
        )
        wheel.writestr(
            "needs_torch-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("needs_torch-1.0.dist-info/RECORD", "")
    return path


@pytest.mark.skipif(not any(importlib.metadata.distributions(name="pip")), reason="pip is not installed")
def test_pip_takes_torch_for_installed(run_python, tmp_path: Path) -> None:
    """Without an index there is nothing that it could download."""
    wheel, there = wheel_that_needs(tmp_path, "(==2.13.0+rushlight)"), tmp_path / "there"
    install = (
        "-m",
        "pip",
        "install",
        "--no-index",
        "--no-compile",
        "--disable-pip-version-check",
        "--prefix",
        str(there),
        str(wheel),
    )
    done = run_python(*RUSHLIGHT, *install)
    assert done.returncode == 0 and "Requirement already satisfied: torch==2.13.0+rushlight" in done.stdout, done.stderr
    (folder,) = there.glob("**/site-packages")
    assert sorted(path.name for path in folder.iterdir()) == ["needs_torch-1.0.dist-info", "needs_torch.py"]
    assert run_python(*RUSHLIGHT, str(folder / "needs_torch.py"), check=True).stdout == "2.13.0+rushlight 2.0\n"
    refused = run_python(*RUSHLIGHT, *install[:-1], str(wheel_that_needs(tmp_path, "(>=3)")))
    assert refused.returncode != 0 and "torch" in refused.stderr
