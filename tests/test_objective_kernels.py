"""The GPU kernels of the objective give the numbers of the torch code, gradients included."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from lieaugmenter.learning import objective, objective_kernels
from lieaugmenter.lie import kernels

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"

pytestmark = [
    pytest.mark.skipif(not kernels.available(), reason="Triton is not installed"),
    pytest.mark.skipif(
        not CUDA and os.environ.get("TRITON_INTERPRET") != "1",
        reason="kernels need a GPU, or TRITON_INTERPRET=1 set before Triton is imported",
    ),
]
needs_gpu = pytest.mark.skipif(not CUDA, reason="needs a GPU")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def classes(*shape: int, of: int, seed: int = 1) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(of, shape, generator=rng).to(DEVICE)


def value_and_gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient is that of a multiple: the kernels must not forget the factor."""
    leaf = x.clone().requires_grad_()
    value = function(leaf)
    assert value.shape == ()
    return value.detach(), torch.autograd.grad(3 * value, leaf)[0]


def assert_same(
    ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor], *, nan: bool = False
) -> None:
    for a, b in zip(ours, theirs, strict=True):
        atol = 1e-5 * float(b.nan_to_num().abs().max())
        torch.testing.assert_close(a, b.float(), atol=atol, rtol=1e-5, equal_nan=nan)


# (batch, views, n): one tile and several, views up to more than one step of the mean.
SHAPES = [(3, 4, 784), (2, 1, 5), (1, 3, 2500), (130, 9, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_mean_abs_cosine(shape: tuple[int, int, int]) -> None:
    x, views = normal(shape[0], shape[2]), normal(*shape, seed=1)
    ours = value_and_gradient(lambda v: objective_kernels.mean_abs_cosine(x, v, 1e-8), views)
    theirs = value_and_gradient(
        lambda v: objective._MeanAbsCosine.apply(x.double(), v.double()), views
    )
    assert_same(ours, theirs)


def test_cosines_of_nothing_are_zero() -> None:
    x, views = normal(3, 8), normal(3, 2, 8, seed=1)
    x[0] = 0
    views[1] = 0
    ours = value_and_gradient(
        lambda v: objective_kernels.mean_abs_cosine(x, v, objective._SHORTEST), views
    )
    theirs = value_and_gradient(lambda v: objective._MeanAbsCosine.apply(x, v), views)
    assert_same(ours, theirs)
    assert bool(ours[1].isfinite().all())


@pytest.mark.parametrize("n_classes", [2, 10, 100, 1000])
@pytest.mark.parametrize("rows", [1, 64, 129])
def test_cross_entropy(rows: int, n_classes: int) -> None:
    logits, labels = 5 * normal(rows, n_classes), classes(rows, of=n_classes)
    ours = value_and_gradient(lambda z: objective_kernels.cross_entropy(z, labels), logits)
    assert_same(ours, value_and_gradient(lambda z: functional.cross_entropy(z, labels), logits))


@pytest.mark.parametrize("expanded", [False, True])
def test_cross_entropy_of_views(expanded: bool) -> None:
    logits, labels = normal(7, 11, 10), classes(7, 11, of=10)
    if expanded:
        labels = labels[:, :1].expand(-1, 11)
    ours = value_and_gradient(lambda z: objective_kernels.cross_entropy(z, labels), logits)
    theirs = value_and_gradient(
        lambda z: functional.cross_entropy(z.flatten(0, 1), labels.reshape(-1)), logits
    )
    assert_same(ours, theirs)


def test_cross_entropy_in_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective_kernels, "_LOGITS_TILE", 64)
    monkeypatch.setattr(objective_kernels, "_SUM_TILE", 4)
    logits, labels = normal(51, 10), classes(51, of=10)
    labels[3] = -100
    ours = value_and_gradient(lambda z: objective_kernels.cross_entropy(z, labels), logits)
    assert_same(ours, value_and_gradient(lambda z: functional.cross_entropy(z, labels), logits))


def test_large_logits_and_logits_that_are_impossible() -> None:
    logits, labels = 1e4 * normal(6, 5), torch.zeros(6, dtype=torch.int64, device=DEVICE)
    logits[:, 3] = -float("inf")
    ours = value_and_gradient(lambda z: objective_kernels.cross_entropy(z, labels), logits)
    assert_same(ours, value_and_gradient(lambda z: functional.cross_entropy(z, labels), logits))


def test_labels_left_out_and_labels_that_are_none() -> None:
    logits, labels = normal(9, 4), classes(9, of=4)
    labels[2] = labels[8] = -100
    ours = value_and_gradient(lambda z: objective_kernels.cross_entropy(z, labels), logits)
    assert_same(ours, value_and_gradient(lambda z: functional.cross_entropy(z, labels), logits))
    for wrong in (4, -1):
        labels[0] = wrong
        assert bool(objective_kernels.cross_entropy(logits, labels).isnan())


def test_a_prediction_that_is_not_a_number_stays_so() -> None:
    logits, labels = normal(4, 3), classes(4, of=3)
    logits[1, 2] = float("nan")
    ours = value_and_gradient(lambda z: objective_kernels.cross_entropy(z, labels), logits)
    theirs = value_and_gradient(lambda z: functional.cross_entropy(z, labels), logits)
    assert_same(ours, theirs, nan=True)


def test_on_a_cpu_nothing_is_taken_by_kernels() -> None:
    logits, labels = torch.zeros(3, 4), torch.zeros(3, dtype=torch.int64)
    assert not objective_kernels.usable(logits)
    assert not objective_kernels.fits(logits, labels)


@needs_gpu
def test_what_the_kernels_take() -> None:
    logits, labels = normal(3, 4), classes(3, of=4)
    assert objective_kernels.fits(logits, labels)
    assert not objective_kernels.fits(logits.double(), labels)
    assert not objective_kernels.fits(logits, labels.int())
    assert not objective_kernels.fits(normal(3, 2000), labels)
    assert not objective_kernels.fits(logits[:0], labels[:0])
    assert not objective_kernels.fits(normal(3, 4, 5), labels)


@needs_gpu
def test_the_terms_on_a_gpu_are_those_of_a_cpu() -> None:
    values = {}
    for device in ("cpu", "cuda"):
        logits = normal(6, 5, 10).to(device).requires_grad_()
        views = normal(6, 5, 49, seed=2).to(device).requires_grad_()
        labels = classes(6, of=10).to(device)
        x = normal(6, 49, seed=3).to(device)
        total = objective.prediction_loss(logits[:, 0], labels)
        total = total + 7 * objective.equivariance_loss(logits, labels[:, None].expand(-1, 5))
        total = total + objective.similarity(x, views)
        gradients = torch.autograd.grad(total, [logits, views])
        values[device] = [t.detach().cpu() for t in (total, *gradients)]
    for a, b in zip(values["cpu"], values["cuda"], strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


@needs_gpu
def test_vmap_takes_the_torch_code() -> None:
    logits, labels = normal(3, 4, 5), classes(3, 4, of=5)
    stacked = torch.func.vmap(objective.prediction_loss)(logits, labels)
    alone = [objective.prediction_loss(z, y) for z, y in zip(logits, labels, strict=True)]
    torch.testing.assert_close(stacked, torch.stack(alone))


@needs_gpu
def test_terms_can_be_captured_in_a_cuda_graph() -> None:
    logits, labels = normal(64, 10, 10).requires_grad_(), classes(64, of=10)
    x, views = normal(64, 784), normal(64, 10, 784, seed=1).requires_grad_()

    def step() -> tuple[Tensor, ...]:
        total = objective.equivariance_loss(logits, labels[:, None].expand(-1, 10))
        total = total + objective.similarity(x, views)
        return total.detach(), *torch.autograd.grad(total, [logits, views])

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    with torch.no_grad():
        logits.copy_(normal(64, 10, 10, seed=5))
    graph.replay()
    torch.cuda.synchronize()
    for ours, again in zip(recorded, step(), strict=True):
        assert torch.equal(ours, again)
