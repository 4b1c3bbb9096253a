"""LieConv-Trivial equals a plain reading of its equations, and does what its parts promise."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lieaugmenter import LieAugmenter, Objective, fit
from lieaugmenter.actions.spatial import AffineAction
from lieaugmenter.actions.structured import StructuredAction
from lieaugmenter.nets.lieconv import LieConv, MaskedBatchNorm, PairNetworks

Molecules = dict[str, Tensor]


def molecules(
    counts: list[int], padded: int, *, dtype: torch.dtype = torch.float64, seed: int = 0
) -> Molecules:
    """Random molecules of these sizes."""
    rng = torch.Generator().manual_seed(seed)
    mask = torch.arange(padded) < torch.tensor(counts).unsqueeze(1)
    charges = torch.tensor([1, 6, 7, 8, 9])[torch.randint(5, mask.shape, generator=rng)]
    positions = 1.5 * torch.randn(*mask.shape, 3, generator=rng, dtype=dtype) + 0.5
    return {
        "positions": positions * mask.unsqueeze(-1),
        "charges": charges * mask,
        "mask": mask.to(dtype),
    }


def network(*, seed: int = 0, width: int = 16, n_blocks: int = 2, n_outputs: int = 2) -> LieConv:
    """A small network in float64, with every parameter off its special initial value."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LieConv(n_outputs, width=width, n_blocks=n_blocks).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


# The reference: one atom and one pair after the other, straight from the equations.


def swish(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def normalised(entries: list[Tensor], weight: Tensor, bias: Tensor) -> list[Tensor]:
    """Batch norm over a list of vectors, then swish; variances below 1e-5 count as 1e-5."""
    mean = sum(entries, torch.zeros_like(weight)) / len(entries)
    squares = [(entry - mean) ** 2 for entry in entries]
    variance = sum(squares, torch.zeros_like(weight)) / len(entries)
    deviation = variance.clamp(min=1e-5).sqrt()
    return [swish((entry - mean) / deviation * weight + bias) for entry in entries]


def reference(model: LieConv, x: Molecules) -> Tensor:
    """The prediction in training mode."""
    p = dict(model.named_parameters())
    sizes = x["mask"].sum(1).int().tolist()
    atoms = [(b, i) for b, n in enumerate(sizes) for i in range(n)]
    pairs = [(b, i, j) for b, n in enumerate(sizes) for i in range(n) for j in range(n)]
    at = {atom: index for index, atom in enumerate(atoms)}

    streams = []
    for b, i in atoms:
        z = int(x["charges"][b, i])
        c = z / 9
        features = torch.zeros(15, dtype=torch.float64)
        place = [1, 6, 7, 8, 9].index(z)
        features[3 * place : 3 * place + 3] = torch.tensor([1.0, c, c * c], dtype=torch.float64)
        streams.append(p["embedding.weight"] @ features)

    for block in range(len(model.blocks)):
        y = [torch.cat([x["positions"][b, i], x["positions"][b, j]]) for b, i, j in pairs]
        for layer in range(3):
            y = [p[f"pairs.weights.{layer}"][block] @ entry for entry in y]
            of_pairs = f"pairs.norms.{layer}"
            y = normalised(y, p[f"{of_pairs}.weight"][block], p[f"{of_pairs}.bias"][block])
        of_pair = dict(zip(pairs, y, strict=True))

        name = f"blocks.{block}"

        def norm(number: int, name: str = name) -> tuple[Tensor, Tensor]:
            return p[f"{name}.norms.{number}.weight"], p[f"{name}.norms.{number}.bias"]

        y = [p[f"{name}.down.weight"] @ entry for entry in normalised(streams, *norm(0))]
        values = normalised(y, *norm(1))
        y = []
        for b, i in atoms:
            outer = [torch.outer(of_pair[b, i, j], values[at[b, j]]) for j in range(sizes[b])]
            flat = torch.stack(outer).sum(0).flatten()
            mixed = p[f"{name}.mix.weight"] @ flat + p[f"{name}.mix.bias"]
            y.append(mixed / sizes[b])
        y = [p[f"{name}.up.weight"] @ entry for entry in normalised(y, *norm(2))]
        streams = [old + change for old, change in zip(streams, y, strict=True)]

    y = normalised(streams, p["norm.weight"], p["norm.bias"])
    y = [p["readout.weight"] @ entry + p["readout.bias"] for entry in y]
    rows = [torch.stack([y[at[b, i]] for i in range(n)]).mean(0) for b, n in enumerate(sizes)]
    return torch.stack(rows)


def with_gradients(
    model: LieConv, x: Molecules, predict: Callable[[Molecules], Tensor]
) -> list[Tensor]:
    """The prediction, and gradients of a weighing of it in positions and all parameters."""
    positions = x["positions"].clone().requires_grad_()
    prediction = predict({**x, "positions": positions})
    weights = torch.randn(prediction.shape, generator=torch.Generator().manual_seed(5))
    loss = (prediction * weights.to(prediction.dtype)).sum()
    return [prediction.detach(), *torch.autograd.grad(loss, [positions, *model.parameters()])]


def test_equals_the_equations_with_gradients() -> None:
    model, x = network(), molecules([4, 2, 5], 6)
    ours = with_gradients(model, x, model)
    theirs = with_gradients(model, x, lambda x: reference(model, x))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)
        assert bool(b.abs().max() > 1e-6)  # nothing is equal because it is zero


def test_float32_is_close_to_float64() -> None:
    model, x = network(), molecules([4, 2, 5], 6)
    exact = with_gradients(model, x, model)
    short = {name: t.float() if t.is_floating_point() else t for name, t in x.items()}
    single = copy.deepcopy(model).float()
    for a, b in zip(with_gradients(single, short, single), exact, strict=True):
        assert a.dtype == torch.float32
        assert float((a - b).norm()) <= 1e-5 * float(b.norm())


def test_number_of_parameters() -> None:
    with torch.device("meta"):
        model = LieConv()
    assert sum(p.numel() for p in model.parameters()) == 21_302_593
    # With a bias in front of every batch norm, as published: 21.32 million.
    biases = 1536 + 6 * (384 + 1536 + 32 + 32 + 16)
    assert 21_302_593 + biases == 21_316_129


def test_a_bias_before_a_batch_norm_would_change_nothing() -> None:
    """Why there is none: what all atoms have in common does not reach the prediction."""
    model, x = network(), molecules([4, 2, 5], 6)
    common = torch.randn(16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    before = model(x)
    model.embedding.register_forward_hook(lambda *call: call[-1] + common)
    torch.testing.assert_close(model(x), before, rtol=0, atol=1e-10)


@pytest.mark.parametrize("training", [True, False])
def test_padding_changes_nothing(training: bool) -> None:
    model, x = network().train(training), molecules([4, 2, 5], 5)
    padded = {
        "positions": torch.nn.functional.pad(x["positions"], (0, 0, 0, 3), value=7.0),
        "charges": torch.nn.functional.pad(x["charges"], (0, 3), value=6),
        "mask": torch.nn.functional.pad(x["mask"], (0, 3)),
    }
    torch.testing.assert_close(model(padded), model(x), rtol=0, atol=1e-12)


def test_the_order_of_atoms_does_not_matter() -> None:
    model, x = network(), molecules([4, 2, 5], 6)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(2))
    shuffled = {name: field[:, order] for name, field in x.items()}
    torch.testing.assert_close(model(shuffled), model(x), rtol=0, atol=1e-12)


@torch.no_grad()
def test_moving_a_molecule_matters() -> None:
    model, x = network().eval(), molecules([4, 2, 5], 6)
    moved = {**x, "positions": x["positions"] + x["mask"].unsqueeze(-1)}
    assert float((model(moved) - model(x)).abs().max()) > 1e-3


def test_evaluation_treats_every_molecule_alone() -> None:
    model, x = network(), molecules([4, 2, 5], 6)
    model(x)  # so that the running statistics are not the initial ones
    model.eval()
    alone = [model({name: field[b : b + 1] for name, field in x.items()}) for b in range(3)]
    torch.testing.assert_close(torch.cat(alone), model(x), rtol=0, atol=1e-12)


def test_running_statistics_are_those_of_torch() -> None:
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 2
    real = torch.arange(50) % 3 > 0
    ours, theirs = MaskedBatchNorm(3).double(), torch.nn.BatchNorm1d(3, eps=1e-12).double()
    torch.testing.assert_close(ours(x, real)[real], theirs(x[real]))
    assert theirs.running_mean is not None
    assert theirs.running_var is not None
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)


def test_small_variances_count_as_eps() -> None:
    x = torch.tensor([[1e-4], [-1e-4]], dtype=torch.float64)
    norm = MaskedBatchNorm(1).double()
    expected = x / 1e-5**0.5
    torch.testing.assert_close(norm(x, torch.tensor([True, True])), expected)


@pytest.mark.parametrize("training", [True, False])
def test_first_layer_of_all_pairs_from_moments_of_the_atoms(training: bool) -> None:
    """Norm and linear map in one, without a look at any pair: values, gradients and tracking."""
    torch.manual_seed(0)
    networks = PairNetworks(3).double().train(training)
    x = molecules([4, 2, 5], 6)
    real = x["mask"].bool()
    norm = networks.norms[0]
    assert isinstance(norm, MaskedBatchNorm)
    with torch.no_grad():
        for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            tensor.copy_(torch.rand_like(tensor) + 0.5)
    plain = copy.deepcopy(networks)

    def joint(positions: Tensor) -> Tensor:
        own = positions.unsqueeze(2).expand(-1, -1, 6, -1)
        return torch.cat([own, own.transpose(1, 2)], dim=-1)

    def by_moments(positions: Tensor) -> Tensor:
        matrix, shift = networks.first_layer(positions, real).split([6, 1], dim=1)
        return torch.einsum("bijd,ldh->bijlh", joint(positions), matrix) + shift.squeeze(1)

    def by_pairs(positions: Tensor) -> Tensor:
        pairs = real.unsqueeze(1) & real.unsqueeze(2)
        z = torch.einsum("bijd,lhd->bijlh", joint(positions), plain.weights[0])
        return plain.norms[0](z, pairs)

    found = []
    for function, module in ((by_moments, networks), (by_pairs, plain)):
        positions = x["positions"].clone().requires_grad_()
        y = function(positions)[real.unsqueeze(1) & real.unsqueeze(2)]
        weighing = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).double()
        first = module.norms[0]
        leaves = [positions, module.weights[0], *first.parameters()]
        gradients = torch.autograd.grad((y * weighing).sum(), leaves)
        found.append([y.detach(), *gradients, first.running_mean, first.running_var])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


def test_bfloat16_stays_near_float32() -> None:
    model = network(width=32).float()
    x = molecules([4, 2, 5, 6, 3], 6, dtype=torch.float32)
    exact = with_gradients(model, x, model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        short = with_gradients(model, x, model)
    assert short[0].dtype == torch.float32
    assert all(bool(t.isfinite().all()) for t in short)
    assert float((short[0] - exact[0]).norm()) < 0.05 * float(exact[0].norm())
    assert not torch.equal(short[0], exact[0])


def test_pair_weights_are_not_rounded_under_autocast() -> None:
    torch.manual_seed(0)
    networks, x = PairNetworks(2), molecules([4, 2, 5], 6, dtype=torch.float32)
    exact = networks(x["positions"], x["mask"].bool())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(networks(x["positions"], x["mask"].bool()), exact)


def test_an_empty_molecule_is_no_trouble() -> None:
    model, x = network(), molecules([4, 0, 5], 6)
    assert bool(torch.stack([t.isfinite().all() for t in with_gradients(model, x, model)]).all())


@torch.no_grad()
def test_an_unknown_element_is_named() -> None:
    model, x = network().eval(), molecules([4, 2, 5], 6)
    x["charges"][1, 0] = 16
    with pytest.raises(
        ValueError, match=r"unknown elements: \[16\]; .* elements=\(1, 6, 7, 8, 9\)"
    ):
        model(x)
    # Where values cannot be asked, as on a GPU, that molecule's prediction tells.
    found = torch.func.vmap(lambda shift: model({**x, "positions": x["positions"] + shift}))(
        torch.zeros(1, 3).double()
    )
    assert found[0].isnan().all(1).tolist() == [False, True, False]


@pytest.mark.parametrize("field", ["charges", "mask"])
def test_fields_that_do_not_go_together_are_named(field: str) -> None:
    x = molecules([4, 2, 5], 6)
    x[field] = x[field][:, :5]
    with pytest.raises(
        ValueError, match=rf"{field} have the shape \(3, 5\), positions \(3, 6, 3\)"
    ):
        network()(x)


def test_forward_mode_derivatives_agree_with_backward_ones() -> None:
    model, x = network(n_outputs=1).eval(), molecules([4, 2], 5)

    def at(positions: Tensor) -> Tensor:
        return model({**x, "positions": positions})

    direction = torch.ones_like(x["positions"])
    forward = torch.func.jvp(at, (x["positions"],), (direction,))[1]
    positions = x["positions"].clone().requires_grad_()
    (slope,) = torch.autograd.grad(at(positions).sum(), positions)
    torch.testing.assert_close(forward.sum(), (slope * direction).sum())


def test_lieaugmenter_trains_it() -> None:
    action = StructuredAction({"positions": AffineAction(3)}, masks={"positions": "mask"})
    augmenter = LieAugmenter(
        action, n_generators=6, output="invariant", n_views=2, range=1.0, warmup_steps=0,
        objective=Objective(absolute=True),
    )  # fmt: skip
    torch.manual_seed(0)
    model = LieConv(width=16, n_blocks=1)
    x = molecules([4, 2, 5, 3], 5, dtype=torch.float32)
    y = torch.randn(4, 1)
    before = augmenter.generators.detach().clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = fit(
            model, augmenter, (x, y), epochs=2, batch_size=2, progress=False, device="cpu"
        )
    assert len(history.records) == 2
    assert not torch.equal(augmenter.generators.detach(), before)


def test_wrong_uses_are_named() -> None:
    with pytest.raises(ValueError, match="no field 'mask'"):
        LieConv(width=16, n_blocks=1)(
            {"positions": torch.zeros(1, 2, 3), "charges": torch.ones(1, 2)}
        )
    with pytest.raises(ValueError, match="width=18"):
        LieConv(width=18)
    with pytest.raises(ValueError, match="n_blocks=0"):
        LieConv(width=16, n_blocks=0)
