"""Sparse tensors on a GPU: values, indices, gradients and errors are those of the CPU, on the device."""

import io

import rushlight as torch

D = torch.device("cuda:0")


def _matrix(device):
    return torch.tensor([[0.0, 1, 2], [3, 0, 0]], device=device)


def _parts(x):
    if x.layout is torch.strided:
        return [x]
    if x.layout is torch.sparse_coo:
        return [x._indices(), x._values()]
    names = ("crow_indices", "col_indices") if x.layout.name.endswith("r") else ("ccol_indices", "row_indices")
    return [*[getattr(x, name)() for name in names], x.values()]


def _same(found, expected, name):
    assert found.device == D and found.layout is expected.layout and found.shape == expected.shape, name
    for a, b in zip(_parts(found), _parts(expected), strict=True):
        assert a.device == D and a.dtype is b.dtype and torch.equal(a.cpu(), b), name


# functions of a tensor in coordinates, one in CSR and the same strided
CALLS = {
    "coalesced": lambda s, c, x: torch.sparse_coo_tensor([[1, 0, 1], [0, 2, 0]], x[0] + 1, (2, 3), device=x.device).coalesce(),
    "of a size": lambda s, c, x: torch.sparse_coo_tensor((2, 3), device=x.device),
    "compressed": lambda s, c, x: torch.sparse_csr_tensor([0, 1, 2], [2, 0], x[0, 1:], (2, 3), device=x.device),
    "columns": lambda s, c, x: c.to_sparse_csc(),
    "blocks": lambda s, c, x: torch.eye(4, device=x.device).to_sparse_bsr((2, 2)),
    "dense": lambda s, c, x: s.to_dense() + c.to_dense(),
    "with dense dims": lambda s, c, x: x.to_sparse(1),
    "no entries": lambda s, c, x: torch.zeros_like(s),
    "zeros": lambda s, c, x: torch.zeros(2, 3, layout=torch.sparse_csr, device=x.device),
    "new": lambda s, c, x: s.new_empty((3, 2)),
    "full_like": lambda s, c, x: torch.full_like(s, 2.0, layout=torch.strided),
    "a function": lambda s, c, x: torch.sin(c),
    "sum of two": lambda s, c, x: s + s.transpose(0, 1).transpose(0, 1) * 2,
    "to a strided one": lambda s, c, x: x + s,
    "product of elements": lambda s, c, x: s * (s * 2),
    "with a strided row": lambda s, c, x: s * x[0],
    "product": lambda s, c, x: c @ x.t().contiguous(),
    "of sparse ones": lambda s, c, x: torch.sparse.mm(s, s.t()),
    "by a sparse one": lambda s, c, x: x @ s.t(),
    "batches": lambda s, c, x: torch.bmm(torch.stack([x, x]).to_sparse(), torch.ones(2, 3, 2, device=x.device)),
    "reduced": lambda s, c, x: torch.sparse.mm(c, x.t().contiguous(), "amax"),
    "sampled": lambda s, c, x: torch.sparse.sampled_addmm(c, x[:, :2], x),
    "sum of a dim": lambda s, c, x: torch.sparse.sum(s, 0),
    "softmax": lambda s, c, x: torch.sparse.softmax(s, 1),
    "index_select": lambda s, c, x: s.index_select(1, torch.tensor([2, 0, 2], device=x.device)),
    "joined": lambda s, c, x: torch.cat([s, s], 1),
    "a row": lambda s, c, x: s[0],
    "masked": lambda s, c, x: x.sparse_mask(s),
    "diagonals": lambda s, c, x: torch.sparse.spdiags(x, torch.tensor([0, 1], device=x.device), (3, 3)),
}  # fmt: skip


def page_operators_give_what_they_give_on_the_cpu():
    for name, call in CALLS.items():
        found, expected = (
            call(x.to_sparse(), x.to_sparse_csr(), x) for x in (_matrix(device) for device in ("cuda", "cpu"))
        )
        _same(found, expected, name)


def page_moving_keeps_layout_and_order_and_takes_gradients_back():
    for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        x = _matrix("cpu").to_sparse(layout=layout)
        _same(x.cuda(), x, layout)
        _same(x.to("cuda", torch.float64), x.double(), layout)
        assert x.cuda().cpu().device.type == "cpu" and torch.equal(x.cuda().cpu().to_dense(), x.to_dense())
        leaf = x.clone().requires_grad_()
        (leaf.cuda() * 2).to_dense().sum().backward()
        assert leaf.grad.device.type == "cpu" and leaf.grad.layout is layout
        assert leaf.grad.values().tolist() == [2.0, 2.0, 2.0]
    uncoalesced = torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0])
    assert not uncoalesced.cuda().is_coalesced() and uncoalesced.coalesce().cuda().is_coalesced()
    target = torch.zeros(2, 3, layout=torch.sparse_coo, device="cuda")
    _same(target.copy_(_matrix("cpu").to_sparse()), _matrix("cpu").to_sparse(), "copy_")
    assert _matrix("cuda").to_sparse().type() == "torch.cuda.sparse.FloatTensor"


def page_printed_with_their_device():
    assert repr(torch.sparse_coo_tensor([[1]], [2.0], (3,), device="cuda")) == (
        "tensor(indices=tensor([[1]]),\n       values=tensor([2.]),\n       device='cuda:0', size=(3,), nnz=1, layout=torch.sparse_coo)"
    )


def page_sparse_gradients_of_embeddings():
    for optimizer in (torch.optim.SparseAdam, torch.optim.SGD, torch.optim.Adagrad):
        found = []
        for device in ("cuda", "cpu"):
            weight = torch.arange(8.0, device=device).reshape(4, 2).requires_grad_()
            step = optimizer([weight], lr=0.5)
            for rows in ([1, 3, 1], [0]):
                step.zero_grad()
                (
                    torch.nn.functional.embedding(torch.tensor(rows, device=device), weight, sparse=True) ** 2
                ).sum().backward()
                assert weight.grad.is_sparse and weight.grad.device.type == device
                step.step()
            found.append(weight.detach().cpu())
        assert torch.allclose(*found), optimizer


def page_indices_follow_values_and_compressed_ones_must_be_beside_them():
    values = torch.ones(1, device="cuda")
    assert torch.sparse_coo_tensor(torch.tensor([[1]]), values, (3,)).indices().device == D
    try:
        torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), values, (1, 1))
    except RuntimeError as error:
        assert "device of compressed_indices (=cpu) must match device of values (=cuda:0)" in str(error)
    else:
        raise AssertionError("parts on two devices were taken")


def page_a_default_device_is_not_that_of_other_tensors_indices():
    x = _matrix("cpu").to_sparse_csr()
    with torch.device("cuda"):
        for made in (x.to_sparse_csc(), x @ torch.ones(3, 2, device="cpu"), (x.to_sparse_coo() * 2).to_dense()):
            assert made.device.type == "cpu"


def page_files_of_sparse_tensors():
    file = io.BytesIO()
    torch.save(_matrix("cuda").to_sparse(), file)
    for place, expected in ((None, "cuda"), ("cpu", "cpu")):
        file.seek(0)
        assert torch.load(file, map_location=place).device.type == expected
