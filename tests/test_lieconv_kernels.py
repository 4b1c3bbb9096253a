"""The GPU kernels of LieConv give the numbers of the torch code, gradients included."""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import silu

from lieaugmenter.lie import kernels
from lieaugmenter.nets import lieconv_kernels
from lieaugmenter.nets.lieconv import LieConv, MaskedBatchNorm, PairNetworks
from lieaugmenter.nets.lieconv_kernels import Packing, pack

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
BF16 = torch.bfloat16
# On a GPU products of float32 are made in tf32.
PRODUCTS = 3e-3 if CUDA else 1e-5

with_kernels = pytest.mark.usefixtures("_kernels")


@pytest.fixture
def _kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not kernels.available():
        pytest.skip("Triton is not installed")
    if not CUDA and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("kernels need a GPU, or TRITON_INTERPRET=1 set before Triton is imported")
    if CUDA:
        yield
        return
    _let_loops_end_at_tensors(monkeypatch)
    # So that memory which nothing was written to is NaN, and is seen if it is read.
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def _let_loops_end_at_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.6's interpreter takes int() of arrays of one number, which NumPy 2.4 refuses."""
    interpreter = importlib.import_module("triton.runtime.interpreter")
    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def mask_of(counts: list[int], padded: int) -> Tensor:
    return (torch.arange(padded) < torch.tensor(counts).unsqueeze(1)).to(DEVICE)


def packed(counts: list[int], padded: int) -> Packing:
    return pack(mask_of(counts, padded), sum(counts))


def results(function: Callable[..., Sequence[Tensor]], *inputs: Tensor) -> list[Tensor]:
    """The values, and the gradients of a random weighing of them."""
    leaves = [t.clone().requires_grad_() for t in inputs]
    values = function(*leaves)
    weights = [normal(*value.shape, seed=9 + k).to(value.dtype) for k, value in enumerate(values)]
    return [
        *(value.detach() for value in values),
        *torch.autograd.grad(values, leaves, weights),
    ]


def assert_all_close(ours: list[Tensor], theirs: list[Tensor], tolerance: float) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        size = float(b.float().abs().max())
        torch.testing.assert_close(a.float(), b.float(), atol=tolerance * size, rtol=0)


def let_few_programs_take_all(patch: pytest.MonkeyPatch) -> None:
    """So that every program has many tiles, also of these few rows and of few parts."""
    patch.setattr(lieconv_kernels, "_PROGRAMS", 3)
    patch.setattr(lieconv_kernels, "_PARTS", 2)


def made_norm(*shape: int, training: bool = True) -> MaskedBatchNorm:
    """A batch norm with nothing at its initial value."""
    norm = MaskedBatchNorm(*shape).to(DEVICE).train(training)
    with torch.no_grad():
        for seed, tensor in enumerate((norm.running_mean, norm.running_var)):
            tensor.copy_(normal(*shape, seed=seed).abs() + 0.5)
    return norm


# Sizes of molecules and of their padded batch: an empty one; more than one tile of rows; one atom.
BATCHES = [([5, 0, 3, 7], 7), ([30, 32, 1, 29, 31, 32], 32), ([1], 1)]


def test_packing_finds_every_atom_in_order() -> None:
    rng = torch.Generator().manual_seed(0)
    real = torch.rand(6, 9, generator=rng) < 0.6
    real[2] = False
    found = pack(real, int(real.sum()))
    n = int(real.sum())
    assert torch.equal(found.slots[:n], real.flatten().nonzero().squeeze(1))
    assert torch.equal(found.starts.diff(), real.sum(1).int())
    assert bool(found.fits.all())
    assert float(found.there.sum()) == n == int(found.n_atoms)
    owners = (found.slots // 9)[:n]
    torch.testing.assert_close(found.inverse[:n], 1.0 / real.sum(1)[owners])
    assert float(found.inverse[n:].sum()) == 0
    assert torch.equal(found.in_pairs, real.sum(1).float() ** 2)


def test_molecules_without_room_are_left_out_whole() -> None:
    found = pack(mask_of([60, 60, 20, 5], 60).cpu(), 128)
    assert found.rows == 128
    assert found.fits.squeeze(1).tolist() == [True, True, False, False]
    assert found.starts.tolist() == [0, 60, 120, 120, 120]
    assert float(found.there.sum()) == 120
    assert found.in_pairs.tolist() == [3600.0, 3600.0, 0.0, 0.0]


@with_kernels
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("columns", [48, 200])
# Of one atom in training see below.
@pytest.mark.parametrize(
    ("batch", "training"), [*((b, True) for b in BATCHES[:2]), *((b, False) for b in BATCHES)]
)
def test_norm_and_swish(batch: tuple[list[int], int], columns: int, training: bool) -> None:
    packing = packed(*batch)
    real = packing.there.squeeze(1).bool()
    ours, theirs = (made_norm(columns, training=training) for _ in range(2))
    # Far from zero, where a careless variance would lose its digits; one column hardly varies.
    x = (100 + normal(packing.rows, columns)) * packing.there
    x[:, 1] = (1 + 1e-4 * normal(packing.rows, seed=2)) * packing.there[:, 0]
    leaves = (x, normal(columns, seed=1), normal(columns, seed=2))

    def by_kernels(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        return [lieconv_kernels.norm_swish(x, weight, bias, ours.running(), packing)]

    def by_torch(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        y = functional_call(theirs, {"weight": weight, "bias": bias}, (x, real))
        return [silu(y) * packing.there]

    if training:
        found, expected = results(by_kernels, *leaves), results(by_torch, *leaves)
        assert_all_close(found, expected, 2e-4)
    else:  # no gradient: running statistics stand still
        found, expected = by_kernels(*leaves), by_torch(*leaves)
        assert_all_close(found, expected, 1e-5)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var, rtol=1e-4, atol=1e-6)


@with_kernels
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
def test_a_few_programs_find_the_same_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    packing = packed([30, 32, 1, 29, 31, 32], 32)
    x = (100 + normal(packing.rows, 200)) * packing.there
    leaves = (x, normal(200, seed=1), normal(200, seed=2))

    def found() -> list[Tensor]:
        norm = made_norm(200)
        return [
            *results(lambda *t: [lieconv_kernels.norm_swish(*t, norm.running(), packing)], *leaves),
            norm.running_mean,
            norm.running_var,
        ]

    many = found()
    let_few_programs_take_all(monkeypatch)
    assert_all_close(found(), many, 2e-4)


@with_kernels
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("columns", [48, 200])
def test_a_single_atom_is_its_own_mean(columns: int) -> None:
    packing, (ours, theirs) = packed([1], 1), (made_norm(columns) for _ in range(2))
    real = packing.there.squeeze(1).bool()
    x = normal(packing.rows, columns) * packing.there
    leaves = (x, normal(columns, seed=1), normal(columns, seed=2))

    def by_kernels(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        return [lieconv_kernels.norm_swish(x, weight, bias, ours.running(), packing)]

    def by_torch(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        y = functional_call(theirs, {"weight": weight, "bias": bias}, (x, real))
        return [silu(y) * packing.there]

    # Gradients of x and of the weight cancel: what is left was multiplied by the largest scale.
    rounding = 1e-6 * ours.eps**-0.5
    for found, expected in zip(
        results(by_kernels, *leaves), results(by_torch, *leaves), strict=True
    ):
        torch.testing.assert_close(found, expected, atol=rounding, rtol=0)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var, rtol=1e-4, atol=1e-6)


@with_kernels
@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("batch", BATCHES[:2])
def test_residual_sum_norm_and_swish(
    batch: tuple[list[int], int], few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if few:
        let_few_programs_take_all(monkeypatch)
    packing = packed(*batch)
    real = packing.there.squeeze(1).bool()
    ours, theirs = made_norm(48), made_norm(48)
    x, change = (normal(packing.rows, 48, seed=s) * packing.there for s in (1, 2))

    def by_kernels(x: Tensor, change: Tensor) -> Sequence[Tensor]:
        norm = (ours.weight, ours.bias, ours.running())
        return lieconv_kernels.add_norm_swish(x, change, *norm, packing)

    def by_torch(x: Tensor, change: Tensor) -> Sequence[Tensor]:
        # What is after the last atom has no gradient.
        total = (x + change) * packing.there
        return total, silu(theirs(total, real)) * packing.there

    assert_all_close(results(by_kernels, x, change), results(by_torch, x, change), 1e-5)
    assert_all_close(
        results(lambda *t: by_kernels(*t)[1:], x, change),
        results(lambda *t: by_torch(*t)[1:], x, change),
        1e-5,
    )


@with_kernels
@pytest.mark.parametrize("columns", [48, 200])
@pytest.mark.parametrize("batch", BATCHES)
def test_convolution(batch: tuple[list[int], int], columns: int) -> None:
    counts, padded = batch
    packing = packed(*batch)
    weights = normal(len(counts), padded, 16, 32, seed=1)
    x = normal(packing.rows, columns)
    starts = packing.starts.tolist()

    def there(weights: Tensor, x: Tensor) -> list[Tensor]:
        """Of weights and rows, what belongs to atoms."""
        pairs = [weights[b, :n, :, :n] for b, n in enumerate(counts)]
        return [torch.cat([pair.flatten() for pair in pairs]), x[: starts[-1]]]

    def by_torch(weights: Tensor, x: Tensor) -> list[Tensor]:
        rows = [
            torch.einsum("imj,jc->imc", weights[b, :n, :, :n], x[starts[b] : starts[b] + n])
            for b, n in enumerate(counts)
        ]
        return [
            torch.nn.functional.pad(
                torch.cat(rows).flatten(1), (0, 0, 0, packing.rows - starts[-1])
            )
        ]

    def by_kernels(weights: Tensor, x: Tensor) -> list[Tensor]:
        return [lieconv_kernels.convolve(weights, x, packing)]

    ours, theirs = results(by_kernels, weights, x), results(by_torch, weights, x)
    assert_all_close([ours[0], *there(*ours[1:])], [theirs[0], *there(*theirs[1:])], PRODUCTS)


@with_kernels
@pytest.mark.parametrize("batch", BATCHES)
def test_pool(batch: tuple[list[int], int]) -> None:
    counts, _ = batch
    packing = packed(*batch)
    starts = packing.starts.tolist()

    def by_torch(x: Tensor) -> list[Tensor]:
        return [
            torch.stack(
                [x[starts[b] : starts[b] + n].sum(0) / max(n, 1) for b, n in enumerate(counts)]
            )
        ]

    x = normal(packing.rows, 200)
    ours = results(lambda x: [lieconv_kernels.pool(x, packing)], x)
    assert_all_close(ours, results(by_torch, x), 1e-6)


def pair_weights(networks: PairNetworks, positions: Tensor, packing: Packing) -> list[Tensor]:
    """By kernels, at [network, molecule, i, m, j], with zeros where there is no pair."""
    real = torch.arange(packing.atoms, device=DEVICE) < packing.starts.diff().unsqueeze(1)
    first = networks.first_layer(positions, real)
    rows = positions.flatten(0, 1).index_select(0, packing.slots)
    norms = [
        (norm.weight, norm.bias, norm.running())
        for norm in networks.norms
        if isinstance(norm, MaskedBatchNorm)
    ]
    found = lieconv_kernels.pair_weights(
        rows, first, networks.weights[1], *norms[1], networks.weights[2], *norms[2],
        packing, torch.float32,
    )  # fmt: skip
    pairs = (real.unsqueeze(1) & real.unsqueeze(2)).unsqueeze(2)
    return [torch.where(pairs, k[..., : packing.atoms], 0.0) for k in found]


@with_kernels
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch", [([5, 0, 3, 7], 7), ([20, 6, 13], 20)])
def test_pair_networks(batch: tuple[list[int], int], training: bool) -> None:
    counts, padded = batch
    real, packing = mask_of(*batch), packed(*batch)
    torch.manual_seed(0)
    theirs = PairNetworks(2).to(DEVICE).train(training)
    with torch.no_grad():
        for number, tensor in enumerate([*theirs.norms.parameters(), *theirs.norms.buffers()]):
            tensor.copy_(normal(*tensor.shape, seed=number).abs() + 0.3)
    ours = copy.deepcopy(theirs)
    positions = 1.5 * normal(len(counts), padded, 3) * real.unsqueeze(-1)

    def gradients(module: PairNetworks, function: Callable[[Tensor], list[Tensor]]) -> list[Tensor]:
        leaf = positions.clone().requires_grad_()
        values = function(leaf)
        weights = [normal(*value.shape, seed=9 + k) for k, value in enumerate(values)]
        found = torch.autograd.grad(values, [leaf, *module.parameters()], weights)
        return [*(value.detach() for value in values), *found]

    def by_torch(leaf: Tensor) -> list[Tensor]:
        return [k.unflatten(1, (padded, 16)) for k in theirs(leaf, real)]

    if not training:
        with torch.no_grad():
            found = pair_weights(ours, positions, packing)
            assert_all_close(found, by_torch(positions), PRODUCTS)
        return
    assert_all_close(
        gradients(ours, lambda leaf: pair_weights(ours, leaf, packing)),
        gradients(theirs, by_torch),
        10 * PRODUCTS,
    )
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=PRODUCTS, atol=PRODUCTS)


def network(width: int = 64) -> LieConv:
    torch.manual_seed(0)
    return LieConv(2, width=width, n_blocks=2).to(DEVICE)


def molecules(counts: list[int], padded: int) -> dict[str, Tensor]:
    real = mask_of(counts, padded)
    rng = torch.Generator().manual_seed(0)
    charges = torch.tensor([1, 6, 7, 8, 9])[torch.randint(5, real.shape, generator=rng)]
    return {
        "positions": 1.5 * normal(*real.shape, 3) * real.unsqueeze(-1),
        "charges": charges.to(DEVICE) * real,
        "mask": real.float(),
    }


def gradients_of(
    model: LieConv, x: dict[str, Tensor], forward: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Predictions, then gradients of the positions and all parameters."""
    positions = x["positions"].clone().requires_grad_()
    prediction = forward(positions)
    weights = normal(*prediction.shape, seed=5)
    loss = (prediction.float() * weights).sum()
    return [prediction.detach(), *torch.autograd.grad(loss, [positions, *model.parameters()])]


@with_kernels
@pytest.mark.parametrize("atoms_first", [True, False])
def test_the_whole_network_agrees_with_its_layers(atoms_first: bool) -> None:
    """In float32; padding may stand anywhere."""
    model, x = network(), molecules([6, 3, 5, 7], 7)
    if not atoms_first:
        x = {name: field.flip(1) for name, field in x.items()}
    other = copy.deepcopy(model)

    def by_kernels(positions: Tensor) -> Tensor:
        return model._forward_by_kernels(
            positions, x["charges"], x["mask"].bool(), dtype=torch.float32
        )

    def by_torch(positions: Tensor) -> Tensor:
        return other({**x, "positions": positions})

    ours, theirs = gradients_of(model, x, by_kernels), gradients_of(other, x, by_torch)
    assert_all_close(ours, theirs, 30 * PRODUCTS)
    for a, b in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=10 * PRODUCTS, atol=10 * PRODUCTS)


@with_kernels
def test_bfloat16_is_as_good_as_autocast() -> None:
    model, x = network(), molecules([6, 3, 5, 7, 7, 4], 7)
    exact = gradients_of(model, x, lambda p: model({**x, "positions": p}))

    def by_kernels(positions: Tensor) -> Tensor:
        return model._forward_by_kernels(positions, x["charges"], x["mask"].bool())

    def by_autocast(positions: Tensor) -> Tensor:
        with torch.autocast(DEVICE, dtype=BF16, cache_enabled=False):
            y = {**x, "positions": positions}
            pair_weights = model.pairs(y["positions"], y["mask"].bool())
            z = model.embedding(model.features(y["charges"]))
            for block, weights in zip(model.blocks, pair_weights, strict=True):
                z = block(z, weights, y["mask"].bool())
            z = silu(model.norm(z, y["mask"].bool())).float()
            shares = y["mask"] / y["mask"].sum(1, keepdim=True)
            return model._read_out((z * shares.unsqueeze(-1)).sum(1))

    ours, theirs = gradients_of(model, x, by_kernels), gradients_of(model, x, by_autocast)
    # Triton's interpreter cuts digits off instead of rounding: it is allowed more.
    factor = 1.5 if CUDA else 4.0
    for a, b, c in zip(ours, theirs, exact, strict=True):
        size = float(c.norm())
        assert float((a - c).norm()) < factor * float((b - c).norm()) + 0.02 * size


@with_kernels
def test_molecules_without_room_get_nan_and_others_what_they_should() -> None:
    model, x = network().eval(), molecules([32, 32, 32, 30, 20], 32)
    real = x["mask"].bool()
    with torch.no_grad():
        exact = model(x)
        kept = model._rows
        try:
            model._rows = lambda real: 128  # pyright: ignore[reportAttributeAccessIssue]
            found = model._forward_by_kernels(
                x["positions"], x["charges"], real, dtype=torch.float32
            )
        finally:
            model._rows = kept  # pyright: ignore[reportAttributeAccessIssue]
    assert bool(found[4].isnan().all())
    torch.testing.assert_close(found[:4], exact[:4], rtol=0, atol=30 * PRODUCTS)


def test_on_a_cpu_nothing_but_the_layers_runs() -> None:
    model, x = LieConv(width=64, n_blocks=1), torch.zeros(2, 3, 3)
    with torch.autocast("cpu", dtype=BF16):
        assert not model._takes_kernels(x)
    assert model._rows(torch.tensor([[True, False]])) == 1


needs_gpu = pytest.mark.skipif(not (CUDA and kernels.available()), reason="needs a GPU")


@needs_gpu
def test_kernels_are_taken_under_autocast_on_a_gpu_and_nowhere_else() -> None:
    model, x = network(), molecules([6, 3], 7)["positions"]
    assert not model._takes_kernels(x)
    with torch.autocast("cuda", dtype=torch.float16):
        assert not model._takes_kernels(x)
    with torch.autocast("cuda", dtype=BF16):
        assert model._takes_kernels(x)
        assert not model._takes_kernels(torch.zeros(1, 40, 3, device="cuda"))
        assert not model._takes_kernels(x[:0])
        assert not copy.deepcopy(model).bfloat16()._takes_kernels(x)
        model.eval()
        assert not model._takes_kernels(x)
        with torch.no_grad():
            assert model._takes_kernels(x)


@needs_gpu
@pytest.mark.parametrize("atoms_per_molecule", [None, 24.0])
def test_a_step_can_be_captured_in_a_cuda_graph(atoms_per_molecule: float | None) -> None:
    """Replayed on molecules of other sizes, it gives what it gives outside the graph."""
    model = network(256)
    model.atoms_per_molecule = atoms_per_molecule
    rng = torch.Generator().manual_seed(3)
    batches = [molecules(torch.randint(9, 30, (64,), generator=rng).tolist(), 29) for _ in range(2)]
    static = {name: field.clone() for name, field in batches[0].items()}
    weights = normal(64, 2, seed=5)

    def step() -> list[Tensor]:
        with torch.autocast("cuda", dtype=BF16):
            prediction = model(static)
        loss = (prediction * weights).sum()
        return [prediction, *torch.autograd.grad(loss, list(model.parameters()))]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    for name, field in batches[1].items():
        static[name].copy_(field)
    graph.replay()
    torch.cuda.synchronize()
    for ours, again in zip(recorded, step(), strict=True):
        # Outside there are as many rows as atoms, and other products for that number.
        assert float((ours - again).detach().norm()) <= 5e-2 * float(again.detach().norm()) + 1e-4


@needs_gpu
def test_two_runs_agree_to_the_bit() -> None:
    model, x = network(256), molecules([20, 13, 29, 18] * 16, 29)
    found = []
    for _ in range(2):
        positions = x["positions"].clone().requires_grad_()
        with torch.autocast("cuda", dtype=BF16):
            prediction = model({**x, "positions": positions})
        found.append(
            [prediction, *torch.autograd.grad(prediction.sum(), [positions, *model.parameters()])]
        )
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
