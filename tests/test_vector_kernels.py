"""The GPU kernels of the vector step give the numbers of `vector_step`, member by member."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from lieaugmenter.learning import vector_kernels, vector_step
from lieaugmenter.lie.kernels import available

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"

pytestmark = [
    pytest.mark.skipif(not available(), reason="Triton is not installed"),
    pytest.mark.skipif(
        not CUDA and os.environ.get("TRITON_INTERPRET") != "1",
        reason="kernels need a GPU, or TRITON_INTERPRET=1 set before Triton is imported",
    ),
]

TERM_WEIGHTS = [1.0, 10.0, 0.7, 0.05]


class Case:
    """Random inputs of a step, (members, …); labels are vectors that move, or one number."""

    def __init__(
        self,
        members: int = 1,
        d: int = 8,
        n_inputs: int = 1,
        n_labels: int = 1,
        views: int = 10,
        *,
        batch: int = 5,
        reach: float = 2.0,
        blocks: bool = False,
    ) -> None:
        self.members, self.batch, self.views, self.n_inputs = members, batch, views, n_inputs
        self.moving = n_labels > 0
        self.raw = torch.randn(members, d, d, device=DEVICE)
        self.mask = torch.ones(d, d, device=DEVICE)
        if blocks:
            self.mask = (torch.rand(d, d, device=DEVICE) < 0.5).float()
            self.mask.fill_diagonal_(1.0)
        self.norm = d**0.5
        self.weights = (2 * torch.rand(members, batch, views, device=DEVICE) - 1) * reach
        self.vectors = torch.randn(members, batch, n_inputs + n_labels, d, device=DEVICE)
        self.bound = reach * self.norm
        self.out = n_labels * d if self.moving else 3
        self.y = torch.randn(members, batch, self.out, device=DEVICE)
        # A stand-in for the network.
        self.layer = torch.randn(members, n_inputs * d, self.out, device=DEVICE) / d
        self.terms = torch.tensor(TERM_WEIGHTS, device=DEVICE)

    def run(self, *, kernels: bool) -> list[Tensor]:
        """Outputs and gradients of a step, all of them (members, …)."""
        raw = self.raw.clone().requires_grad_()
        layer = self.layer.clone().requires_grad_()
        settings = (self.n_inputs, self.bound)
        parts = (self.weights, self.vectors)
        if kernels:
            joined, y_views, regularisers = vector_kernels.augment(
                raw, self.mask, self.norm, *parts, *settings
            )
        else:
            made = [
                vector_step.augment(
                    raw[s : s + 1], self.mask, self.norm, *(p[s] for p in parts), *settings
                )
                for s in range(self.members)
            ]
            joined, y_views, regularisers = (torch.stack(list(o)) for o in zip(*made, strict=True))

        joined.retain_grad()
        prediction = (joined @ layer).tanh()
        prediction.retain_grad()
        labels = y_views if self.moving else self.y.unsqueeze(2)
        if self.moving:
            labels.retain_grad()
        if kernels:
            totals, terms = vector_kernels.total(
                prediction, self.y, labels, regularisers, self.terms
            )
        else:
            wide = labels.expand(-1, -1, self.views, -1)
            done = [
                vector_step.total(prediction[s], self.y[s], wide[s], regularisers[s], self.terms)
                for s in range(self.members)
            ]
            totals, terms = (torch.stack(list(o)) for o in zip(*done, strict=True))
        assert not terms.requires_grad
        totals.sum().backward()
        gradients = [raw.grad, layer.grad, prediction.grad, joined.grad]
        gradients += [labels.grad] if self.moving else []
        return [t.detach() for t in (joined, y_views, regularisers, totals, terms, *gradients)]


CASES = {
    "paper": {},
    "ensemble": {"members": 3},
    "three labels": {"n_labels": 3},
    "ensemble of three labels": {"members": 3, "n_labels": 3, "batch": 3},
    "invariant": {"n_labels": 0},
    "invariant ensemble of several vectors": {"members": 3, "n_inputs": 3, "n_labels": 0},
    "d = 3": {"d": 3, "n_inputs": 2, "members": 3},
    "d = 5": {"d": 5, "n_inputs": 2, "n_labels": 3, "batch": 7},
    "d = 1": {"d": 1, "views": 3},
    "mask": {"blocks": True, "members": 3},
    "one view": {"views": 1, "members": 3},
    "one view, invariant": {"views": 1, "n_labels": 0, "d": 3},
    "one sample": {"batch": 1},
    "many samples": {"batch": 70, "d": 3, "reach": 0.5},
    "several blocks of views": {
        "d": 20,
        "n_inputs": 5,
        "n_labels": 4,
        "views": 37,
        "batch": 2,
        "reach": 0.3,
    },
    "largest": {
        "d": 32,
        "n_inputs": 9,
        "n_labels": 7,
        "views": 64,
        "batch": 1,
        "reach": 0.3,
    },
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_numbers_are_those_of_the_vector_step(options: dict) -> None:
    case = Case(**options)
    for mine, theirs in zip(case.run(kernels=True), case.run(kernels=False), strict=True):
        largest = max([1.0, *theirs.abs().flatten().tolist()])
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5 * largest)


def test_two_calls_agree_to_the_bit() -> None:
    case = Case(members=3, n_labels=3)
    for once, again in zip(case.run(kernels=True), case.run(kernels=True), strict=True):
        assert torch.equal(once, again)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("wrong", [torch.inf, torch.nan])
def test_what_is_not_finite_stays_so_in_its_member(wrong: float) -> None:
    case = Case(members=2, d=3)
    case.raw[0, 1, 1] = wrong
    _, _, _, totals, _, of_raw, *_ = case.run(kernels=True)
    for result in (totals, of_raw.sum((1, 2))):
        assert result.isfinite().tolist() == [False, True]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_every_output_alone_has_a_gradient(which: int) -> None:
    case = Case(members=2, d=3)
    gradients = []
    for kernels in (True, False):
        raw = case.raw.clone().requires_grad_()
        if kernels:
            output = vector_kernels.augment(
                raw, case.mask, case.norm, case.weights, case.vectors, 1, case.bound
            )[which]
            output.square().sum().backward()
        else:
            for s in range(2):
                output = vector_step.augment(
                    raw[s : s + 1], case.mask, case.norm, case.weights[s], case.vectors[s], 1,
                    case.bound,
                )[which]  # fmt: skip
                output.square().sum().backward()
        assert raw.grad is not None
        gradients.append(raw.grad)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_predictions_may_have_any_memory_layout() -> None:
    case = Case(members=2, d=3)
    joined, y_views, regularisers = vector_kernels.augment(
        case.raw, case.mask, case.norm, case.weights, case.vectors, 1, case.bound
    )
    strided = joined.transpose(0, 1).contiguous().transpose(0, 1)
    results = [
        vector_kernels.total(prediction, case.y, y_views, regularisers, case.terms)
        for prediction in (joined, strided)
    ]
    assert torch.equal(results[0][0], results[1][0])


def test_sizes_beyond_the_kernels_are_told() -> None:
    assert vector_kernels.fits(32, 16, 64)
    assert not vector_kernels.fits(33, 1, 1)
    assert not vector_kernels.fits(1, 17, 1)
    assert not vector_kernels.fits(1, 1, 65)


@pytest.mark.skipif(not CUDA, reason="a CUDA graph needs a GPU")
def test_a_step_can_be_captured() -> None:
    case = Case(members=3)
    expected = case.run(kernels=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        case.run(kernels=True)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = case.run(kernels=True)
    graph.replay()
    for mine, theirs in zip(captured, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
