"""Checkpoints as files: PyTorch's and ours in both directions, hostile ones, and ones whose writer was killed."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.distributed.programs import checkpoint_programs as programs
from tests.distributed.programs.pytorch_checkpoint import STORED, contents, listed
from tests.distributed.ranks import ROOT, Ranks

import rushlight as torch
import rushlight.distributed.checkpoint as dcp
from rushlight.distributed.checkpoint import filesystem
from rushlight.distributed.checkpoint.format_utils import (
    BroadcastingTorchSaveReader,
    DynamicMetaLoadPlanner,
    dcp_to_torch_save,
    torch_save_to_dcp,
)
from rushlight.distributed.checkpoint.metadata import TensorStorageMetadata
from rushlight.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from rushlight.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
from rushlight.serialization.unpickler import global_names

pytestmark = pytest.mark.filterwarnings("ignore:(torch.distributed is|a checkpoint is in):UserWarning")


def loaded(folder: Any) -> Any:
    """All of a checkpoint."""
    return listed(_load_state_dict_from_keys(checkpoint_id=folder))


def test_a_checkpoint_of_two_ranks_of_pytorch() -> None:
    assert loaded(STORED) == listed(contents(torch))
    metadata = dcp.FileSystemReader(STORED).read_metadata()
    rows = metadata.state_dict_metadata["model.rows"]
    assert isinstance(rows, TensorStorageMetadata) and rows.size == (5, 3)
    assert [(tuple(c.offsets), tuple(c.sizes)) for c in rows.chunks] == [((0, 0), (3, 3)), ((3, 0), (2, 3))]
    assert _load_state_dict_from_keys("model.rows", checkpoint_id=STORED)["model"].keys() == {"rows"}


def test_metadata_names_what_pytorch_has(tmp_path: Path) -> None:
    """What a pickle names decides what PyTorch imports."""
    dcp.save(contents(torch), checkpoint_id=tmp_path, no_dist=True)
    names = global_names((tmp_path / ".metadata").read_bytes())
    page = "torch.distributed.checkpoint"
    kinds = ("BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
             "TensorStorageMetadata", "_MEM_FORMAT_ENCODING")  # fmt: skip
    assert names == {
        *(f"{page}.metadata.{kind}" for kind in kinds),
        f"{page}.filesystem._StorageInfo",
        *(
            "torch.Size",
            "torch.bfloat16",
            "torch.bool",
            "torch.float32",
            "torch.int64",
            "torch.serialization._get_layout",
        ),
    }


def test_names_of_older_versions_of_pytorch(tmp_path: Path) -> None:
    """Properties were on another page, and dicts without tensors were kept whole."""
    dcp.save({"w": torch.ones(2), "d": {"lr": 1}}, checkpoint_id=tmp_path, no_dist=True)
    held = {"w": torch.zeros(2), "d": {"lr": 0, "more": 0}}
    path, page = tmp_path / ".metadata", b"torch.distributed.checkpoint.metadata\n"
    older = b"torch.distributed._shard.sharded_tensor.metadata\n"
    data = path.read_bytes().replace(page + b"TensorProperties", older + b"TensorProperties")
    path.write_bytes(data.replace(page + b"_MEM_FORMAT_ENCODING", older + b"MEM_FORMAT_ENCODING"))
    assert loaded(tmp_path) == {"w": [1.0, 1.0], "d": {"lr": 1}}
    planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
    dcp.save({"w": torch.ones(2), "d": {"lr": 1, "more": 2}}, checkpoint_id=tmp_path, planner=planner, no_dist=True)
    dcp.load(held, checkpoint_id=tmp_path, no_dist=True)
    assert listed(held) == {"w": [1.0, 1.0], "d": {"lr": 1, "more": 2}}


@pytest.mark.oracle
@pytest.mark.parametrize("back", [False, pytest.param(True, marks=pytest.mark.distributed)])
def test_pytorch_reads_what_four_ranks_wrote(four: Ranks, tmp_path: Path, back: bool) -> None:
    pytest.importorskip("torch")
    script = ROOT / "tests" / "distributed" / "programs" / "pytorch_checkpoint.py"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def real(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=120, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    four.run(programs.save_contents, str(tmp_path / "ours"))
    assert json.loads(real("read", str(tmp_path / "ours"))) == listed(contents(torch))
    if back:
        real("write", str(tmp_path / "theirs"))
        assert loaded(tmp_path / "theirs") == listed(contents(torch))


def test_files_of_save_and_back(tmp_path: Path) -> None:
    torch.save(contents(torch), tmp_path / "one.pt")
    torch_save_to_dcp(tmp_path / "one.pt", tmp_path / "many")
    assert loaded(tmp_path / "many") == listed(contents(torch))
    dcp_to_torch_save(tmp_path / "many", tmp_path / "again.pt")
    assert listed(torch.load(tmp_path / "again.pt")) == listed(contents(torch))
    held = {"model": {"rows": torch.zeros(5, 3)}}
    dcp.load(
        held,
        checkpoint_id=tmp_path / "one.pt",
        storage_reader=BroadcastingTorchSaveReader(),
        planner=DynamicMetaLoadPlanner(),
        no_dist=True,
    )
    assert torch.equal(held["model"]["rows"], contents(torch)["model"]["rows"])


# ***** settings of the planners and of the folder *****


def test_writers_and_readers_by_their_places(tmp_path: Path) -> None:
    state = {"w": torch.zeros(2)}
    with pytest.warns(UserWarning, match="The argument order of save has been changed"):
        dcp.save({"w": torch.ones(2)}, dcp.FileSystemWriter(tmp_path), no_dist=True)  # type: ignore[call-arg, arg-type]
    with pytest.warns(UserWarning, match="The argument order of load has been changed"):
        dcp.load(state, dcp.FileSystemReader(tmp_path), no_dist=True)  # type: ignore[call-arg, arg-type]
    assert state["w"].tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="positional argument"):
        dcp.save(state, dcp.FileSystemWriter(tmp_path), None, no_dist=True)  # type: ignore[call-arg, arg-type]


@pytest.mark.parametrize("options", [{"single_file_per_rank": False}, {"thread_count": 3}, {"sync_files": False}])
def test_writers(tmp_path: Path, options: dict[str, Any]) -> None:
    dcp.save(contents(torch), storage_writer=dcp.FileSystemWriter(tmp_path, **options), no_dist=True)
    assert loaded(tmp_path) == listed(contents(torch))
    count = {"single_file_per_rank": 11, "thread_count": 3, "sync_files": 1}[next(iter(options))]
    assert len(list(tmp_path.glob("*.distcp"))) == count
    with pytest.raises(dcp.CheckpointException, match="already exists"):
        dcp.save({}, storage_writer=dcp.FileSystemWriter(tmp_path, overwrite=False), no_dist=True)


def test_planners(tmp_path: Path) -> None:
    planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
    for step in (1.0, 2.0):
        dcp.save({"w": torch.full((3,), step), "n": step}, checkpoint_id=tmp_path, planner=planner, no_dist=True)
    assert loaded(tmp_path) == {"w": [2.0] * 3, "n": 2.0}
    held = {"w": torch.zeros(3), "absent": torch.ones(1)}
    dcp.load(held, checkpoint_id=tmp_path, planner=dcp.DefaultLoadPlanner(allow_partial_load=True), no_dist=True)
    assert listed(held) == {"w": [2.0] * 3, "absent": [1.0]}
    meta = {"w": torch.empty(3, device="meta")}
    dcp.load(meta, checkpoint_id=tmp_path, no_dist=True)
    assert meta["w"].tolist() == [2.0] * 3


def test_what_is_refused(tmp_path: Path) -> None:
    dcp.save({"w": torch.ones(3), "object": Path("x")}, checkpoint_id=tmp_path, no_dist=True)
    cases: list[tuple[dict[str, Any], str, type]] = [
        ({"v": torch.ones(3)}, "Missing key in checkpoint state_dict: v", RuntimeError),
        ({"w": torch.ones(4)}, "Size mismatch between saved", ValueError),
        ({"w": 1}, "expected BytesStorageMetadata", ValueError),
        ({"object": None}, "not an allowed global", pickle.UnpicklingError),
    ]
    for state, text, kind in cases:
        with pytest.raises(dcp.CheckpointException, match=text) as caught:
            dcp.load(state, checkpoint_id=tmp_path, no_dist=True)
        assert type(caught.value.failures[0][0]) is kind
    with pytest.raises(dcp.CheckpointException, match="a checkpoint has strided tensors"):
        dcp.save({"s": torch.eye(2).to_sparse()}, checkpoint_id=tmp_path, no_dist=True)
    with pytest.raises(RuntimeError, match="`checkpoint_id` must be specified"):
        dcp.save({})


# ***** names of states *****


class Shared(torch.nn.Module):
    """A parameter with two names, a frozen one, and a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (torch.nn.Linear(2, 2, bias=k < 2) for k in range(3))
        self.b.weight = self.a.weight
        self.c.weight.requires_grad_(False)
        self.register_buffer("gone", torch.ones(1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.b(self.a(x)))


def trained(steps: int) -> tuple[Any, Any]:
    torch.manual_seed(0)
    net = Shared()
    groups = [{"params": [net.a.weight, net.a.bias], "lr": 0.1}, {"params": [net.b.bias, net.c.weight], "lr": 0.2}]
    optimizer = torch.optim.AdamW(groups)
    for _ in range(steps):
        net(torch.ones(3, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return net, optimizer


@pytest.mark.parametrize("flat", [False, True])
def test_states_by_names(flat: bool) -> None:
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    net, optimizer = trained(2)
    of_model, of_optimizer = get_state_dict(torch.compile(net), optimizer, options=options)
    assert list(of_model) == ["a.weight", "a.bias", "b.weight", "b.bias", "c.weight"]
    if flat:
        assert {"state.a.bias.exp_avg", "param_groups.c.weight.lr"} <= of_optimizer.keys()
    else:
        assert list(of_optimizer["state"]) == ["a.weight", "a.bias", "b.bias"]
        assert [group["params"] for group in of_optimizer["param_groups"]] == [
            ["a.weight", "a.bias"],
            ["b.bias", "c.weight"],
        ]
    other, other_optimizer = trained(0)
    found = set_state_dict(
        other, other_optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer, options=options
    )
    assert [list(names) for names in found] == [[], []]
    assert listed(other.state_dict()) == listed(net.state_dict())
    assert listed(other_optimizer.state_dict()) == listed(optimizer.state_dict())


def test_states_that_do_not_fit() -> None:
    net, optimizer = trained(1)
    of_model, of_optimizer = get_state_dict(net, optimizer, options=StateDictOptions(ignore_frozen_params=True))
    assert "c.weight" not in of_model
    with pytest.raises(RuntimeError, match="c.weight"):
        set_model_state_dict(net, of_model)
    found = set_model_state_dict(net, {**of_model, "x": torch.ones(1)}, options=StateDictOptions(strict=False))
    assert [list(names) for names in found] == [["c.weight"], ["x"]]
    of_optimizer["state"].pop("a.bias")
    with pytest.raises(RuntimeError, match="Missing optimizer state for parameter 'a.bias'"):
        set_optimizer_state_dict(net, optimizer, of_optimizer)
    set_optimizer_state_dict(net, optimizer, of_optimizer, options=StateDictOptions(strict=False))
    with pytest.raises(RuntimeError, match="model state_dict is empty"):
        set_model_state_dict(net, {})
    with pytest.raises(ValueError, match="full_state_dict must be True"):
        get_model_state_dict(net, options=StateDictOptions(broadcast_from_rank0=True))
    begun = get_optimizer_state_dict(*trained(0))  # none of the steps is done
    assert [held["step"].item() for held in begun["state"].values()] == [0, 0, 0]


# ***** hostile folders *****


def test_hostile_checkpoints() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.distributed.programs.checkpoint_fuzz", "200"], capture_output=True, text=True, timeout=200,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "UnpicklingError" in done.stdout and "RuntimeError" in done.stdout


def test_metadata_runs_nothing(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path}/ran",)

    for evil in (pickle.dumps(Evil()), pickle.dumps([1])):
        (tmp_path / ".metadata").write_bytes(evil)
        with pytest.raises(dcp.CheckpointException, match="UnpicklingError"):
            dcp.load({}, checkpoint_id=tmp_path, no_dist=True)
    assert not (tmp_path / "ran").exists()


# ***** killed *****


class Died(BaseException):
    """Instead of the end of the process."""


def test_a_writer_that_ends_at_any_moment_leaves_one_whole_checkpoint(tmp_path: Path) -> None:
    def state(step: float) -> dict[str, Any]:
        return {"w": torch.full((50,), step), "n": step, "v": torch.full((2, 3), step)}

    class Mortal(filesystem.FileSystem):
        left = 0

        def live(self) -> None:
            self.left -= 1
            if self.left < 0:
                raise Died

        @contextmanager
        def create_stream(self, path: Any, mode: str) -> Any:
            with super().create_stream(path, mode) as stream:
                if mode != "rb":
                    self.live()
                yield stream
                if mode != "rb":
                    self.live()

        def rename(self, path: Any, new_path: Any) -> None:
            self.live()
            super().rename(path, new_path)
            self.live()

        def rm_file(self, path: Any) -> None:
            self.live()
            super().rm_file(path)

    ends = []
    for moment in range(24):
        folder = tmp_path / str(moment)
        dcp.save(state(1.0), checkpoint_id=folder, no_dist=True)
        writer = dcp.FileSystemWriter(folder, single_file_per_rank=False, sync_files=False)
        writer.fs = Mortal()
        writer.fs.left = moment
        try:
            dcp.save(state(2.0), storage_writer=writer, no_dist=True)
            ends.append("saved")
        except dcp.CheckpointException:
            ends.append("died")
        held = loaded(folder)
        assert held in (listed(state(1.0)), listed(state(2.0))), moment
        dcp.save(state(3.0), checkpoint_id=folder, no_dist=True)  # and what was left behind goes
        assert loaded(folder) == listed(state(3.0)) and len(os.listdir(folder)) == 2
    assert {"saved", "died"} == set(ends)


@pytest.mark.distributed
def test_a_killed_rank_loses_nothing_of_the_last_checkpoint(mpi: None, tmp_path: Path) -> None:
    ranks = Ranks(2)
    try:
        found = ranks.run(programs.killed_in_save, str(tmp_path), fails=True, timeout=30)
    finally:
        ranks.close()
    assert found[1] is None and found[0].startswith("RuntimeError: RankFailedError")
    assert loaded(tmp_path) == {"w": [1.0] * 9}


@pytest.mark.distributed
@pytest.mark.parametrize("number", range(int(os.environ.get("RUSHLIGHT_KILLS", "3"))))
def test_ranks_that_are_killed_at_any_moment(mpi: None, tmp_path: Path, number: int) -> None:
    chance = random.Random(number)
    ranks, victim = Ranks(3), chance.randrange(3)
    try:
        found = ranks.run(
            programs.save_until_killed, str(tmp_path), victim, 0.2 + chance.random(), fails=True, timeout=150
        )
    finally:
        ranks.close()
    assert found[victim] is None and all("RankFailedError" in text for text in found if text is not None)
    held = loaded(tmp_path)
    assert held["w"] == [float(held["step"])] * 30_000


# ***** files of safetensors *****


def test_folders_of_hugging_face(four: Ranks, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    assert four.run(programs.hugging_face, str(tmp_path)) == [[]] * 4
    names = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"}
    assert names | {"sharded"} == set(os.listdir(tmp_path / "both"))
    index = json.loads((tmp_path / "both" / "model.safetensors.index.json").read_text())
    assert index["weight_map"]["t1"] == "model-00002-of-00002.safetensors"
    index["weight_map"]["t1"] = "../x.safetensors"
    (tmp_path / "both" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="must lie in the same folder"):
        dcp.HuggingFaceStorageReader(str(tmp_path / "both")).read_metadata()


def test_quantized_folders(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("rushlight.serialization.safetensors")
    torch.manual_seed(0)
    weights, scales = torch.randn(5, 7).to(torch.float8_e4m3fn), torch.rand(3, 3) + 0.5
    blocks, powers = (
        torch.randint(0, 256, (2, 3, 2, 16), dtype=torch.uint8),
        torch.randint(120, 130, (2, 3, 2)).to(torch.uint8),
    )
    held = {
        "a.weight": weights,
        "a.weight_scale_inv": scales,
        "m_blocks": blocks,
        "m_scales": powers,
        "b": torch.ones(2),
    }
    safetensors.save_file(held, tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": dict.fromkeys(held, "model.safetensors")})
    )
    found = {"a.weight": torch.zeros(5, 7), "m_blocks": torch.zeros(2, 3, 64), "b": torch.zeros(2)}
    reader = dcp.QuantizedHuggingFaceStorageReader(str(tmp_path), block_size=3)
    dcp.load(found, storage_reader=reader, no_dist=True)
    spread = scales.repeat_interleave(3, 0)[:5].repeat_interleave(3, 1)[:, :7]
    assert torch.equal(found["a.weight"], weights.float() * spread) and found["b"].tolist() == [1, 1]
    table = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
    for place in ((0, 0, 0), (1, 2, 37), (1, 0, 63)):
        i, j, k = place
        byte = int(blocks[i, j, k // 32, k % 32 // 2])
        number = table[byte >> 4 if k % 2 else byte & 15]
        assert found["m_blocks"][place].item() == number * 2.0 ** (int(powers[i, j, k // 32]) - 127)


def test_streams_may_be_changed(tmp_path: Path) -> None:
    from rushlight.distributed.checkpoint._extension import ExtensionRegistry, StreamTransformExtension

    class Turned(StreamTransformExtension):
        @staticmethod
        def registry_name() -> str:
            return "turned"

        @staticmethod
        def from_descriptor(version: str) -> Turned:
            return Turned()

        def get_descriptor(self) -> str:
            return "turned/1"

        def transform_to(self, output: Any) -> Any:
            class Out(io.RawIOBase):
                def write(self, data: Any) -> int:
                    return output.write(bytes(b ^ 1 for b in bytes(data)))

            return Out()

        def transform_from(self, input: Any) -> Any:
            return io.BytesIO(bytes(b ^ 1 for b in input.read()))

    dcp.save(
        {"w": torch.ones(3), "n": 1},
        storage_writer=dcp.FileSystemWriter(tmp_path, _extensions=[Turned()]),
        no_dist=True,
    )
    known = ExtensionRegistry()
    known.register(Turned)
    held = {"w": torch.zeros(3), "n": 0}
    dcp.load(held, storage_reader=dcp.FileSystemReader(tmp_path, _extension_registry=known), no_dist=True)
    assert listed(held) == {"w": [1.0] * 3, "n": 1}
    with pytest.raises(dcp.CheckpointException, match="Unknown extension name='turned'"):
        dcp.load(held, checkpoint_id=tmp_path, no_dist=True)
