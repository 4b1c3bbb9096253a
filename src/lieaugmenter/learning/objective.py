"""The objective: five terms of the paper and one of our own, each a function with a weight.

Losses are sums over output dimensions, as the paper's equations say, and means over samples and
views. With means over dimensions the two-body basis stays wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import cosine_similarity, cross_entropy, l1_loss, mse_loss

from lieaugmenter.learning import objective_kernels

# Shorter vectors count as this long when a cosine is taken.
_SHORTEST = 1e-8
# A sample has moved noticeably when it has moved by this fraction of its size.
_ENOUGH = 0.5


def smooth_abs(z: Tensor, smoothing: float) -> Tensor:
    """|z|_τ = sqrt(z² + τ²), the differentiable surrogate of the convergence analysis; |z| at 0."""
    return z.abs() if smoothing == 0 else (z.square() + smoothing**2).sqrt()


def _summed_abs(a: Tensor, b: Tensor, smoothing: float) -> Tensor:
    if smoothing == 0:
        return l1_loss(a, b, reduction="sum")
    return smooth_abs(a - b, smoothing).sum()


def prediction_loss(
    prediction: Float[Tensor, "batch *out"],
    y: Tensor,
    *,
    absolute: bool = False,
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """L_emp, Eq. (3): squared error summed over outputs, or cross-entropy for integer labels.

    Parameters
    ----------
    prediction
        Ψ(x): (batch, …) like y, or logits (batch, classes).
    y
        Targets, or integer class labels (batch,).
    absolute
        Absolute instead of squared errors.
    smoothing
        τ of the surrogate |z|_τ of absolute errors.
    """
    if not y.is_floating_point():
        if y.ndim == 1 and objective_kernels.fits(prediction, y):
            return objective_kernels.cross_entropy(prediction, y)
        return cross_entropy(prediction, y)
    if absolute:
        return _summed_abs(prediction, y, smoothing) / len(y)
    return mse_loss(prediction, y, reduction="sum") / len(y)


def equivariance_loss(
    prediction: Float[Tensor, "batch views *out"],
    target: Float[Tensor, "batch views *out"] | Int[Tensor, "batch views"],
    *,
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """L_equiv, Eq. (4): ‖Ψ(g x) - g y‖₁ against the transformed label, or cross-entropy.

    Parameters
    ----------
    prediction
        Ψ(g x): (batch, views, …), or logits (batch, views, classes).
    target
        g y, or integer class labels (batch, views).
    smoothing
        τ of the surrogate |z|_τ.
    """
    if not target.is_floating_point():
        if objective_kernels.fits(prediction, target):
            return objective_kernels.cross_entropy(prediction, target)
        return cross_entropy(prediction.flatten(0, 1), target.reshape(-1))
    return _summed_abs(prediction, target, smoothing) / (target.shape[0] * target.shape[1])


def mean_abs_cosine(
    x: Float[Tensor, "batch n"], views: Float[Tensor, "batch views n"]
) -> tuple[Tensor, list[Tensor]]:
    """Mean |cos(x, v)|, and what its backward pass needs."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min_(_SHORTEST)
    unit = (x / length).unsqueeze(1)
    length = torch.linalg.vector_norm(views, dim=-1, keepdim=True).clamp_min_(_SHORTEST)
    cosine = (views * unit).sum(-1, keepdim=True).div_(length)
    return cosine.abs().mean(), [unit, views, length, cosine]


def mean_abs_cosine_backward(
    gradient: Tensor, unit: Tensor, views: Tensor, length: Tensor, cosine: Tensor
) -> Tensor:
    """Gradient in the views: d|cos|/dv = sign(cos) (unit - cos v / |v|) / |v|."""
    across = torch.addcmul(unit, views, cosine / length, value=-1.0)
    scale = cosine.sgn().div_(length).mul_(gradient / cosine.numel())
    return across.mul_(scale)


class _MeanAbsCosine(torch.autograd.Function):
    """mean |cos(x, v)| with its gradient in v by hand: a third of autograd's time on small data."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, x: Tensor, views: Tensor
    ) -> Tensor:
        value, saved = mean_abs_cosine(x, views)
        ctx.save_for_backward(*saved)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, mean_abs_cosine_backward(gradient, *ctx.saved_tensors)


def similarity(
    x: Float[Tensor, "batch n"], views: Float[Tensor, "batch views n"], *, smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """ℓ_areg, Eq. (6): mean |cos(x, g x)|, 1 when elements only rescale or do nothing.

    Differentiable in the views; the data x is taken as given.
    """
    if smoothing == 0:
        if objective_kernels.usable(x, views):
            return objective_kernels.mean_abs_cosine(x, views, _SHORTEST)
        return _MeanAbsCosine.apply(x, views)
    return smooth_abs(cosine_similarity(x.unsqueeze(1), views, dim=-1), smoothing).mean()


def proximity(
    x: Float[Tensor, "batch n"], views: Float[Tensor, "batch views n"]
) -> Float[Tensor, ""]:
    """Mean of 1 / (1 + (‖g x - x‖ / (‖x‖/2))²): 1 when nothing moves, towards 0 as it moves.

    The paper's `similarity` is as large for a pure scaling as for doing nothing, so that a scaling
    symmetry can never be found under it; this term sees that a scaling moves the data. It is
    nearly satisfied once a sample has moved by its own size, so that it does not drive generators
    to ever larger motions.
    """
    moved = (views - x.unsqueeze(1)).square().sum(-1)
    enough = x.square().sum(-1, keepdim=True) * _ENOUGH**2
    return (enough / (enough + moved).clamp_min(torch.finfo(x.dtype).tiny)).mean()


def sparsity(basis: Float[Tensor, "c d d"], *, smoothing: float = 0.0) -> Float[Tensor, ""]:
    """ℓ_bsreg, Eq. (7): sum of |entries| of the normalised generators."""
    return smooth_abs(basis, smoothing).sum()


def alignment(basis: Float[Tensor, "c d d"], *, smoothing: float = 0.0) -> Float[Tensor, ""]:
    """ℓ_bcreg, Eq. (8): sum over pairs of |cos(L_i, L_j)|."""
    c = basis.shape[0]
    unit = torch.nn.functional.normalize(basis.flatten(1), dim=1)
    above = torch.ones(c, c, dtype=torch.bool, device=basis.device).triu(1)
    return (smooth_abs(unit @ unit.mT, smoothing) * above).sum()


@dataclass(frozen=True)
class Objective:
    """Weights of the total objective, Eq. (9); the main loss, Eq. (5), is its first two terms.

    Parameters
    ----------
    prediction
        α, of `prediction_loss`.
    equivariance
        β, of `equivariance_loss`.
    similarity
        λ, of `similarity`: the paper's non-triviality term.
    sparsity
        ν, of `sparsity`.
    alignment
        η, of `alignment`; without effect for one generator.
    proximity
        Of `proximity`: the non-triviality term under which scalings can be found.
    smoothing
        τ of the surrogate |z|_τ in place of every |z|; 0 for the objective itself.
    absolute
        Absolute instead of squared errors in the prediction loss.
    """

    prediction: float = 1.0
    equivariance: float = 10.0
    similarity: float = 0.0
    sparsity: float = 1e-3
    alignment: float = 1.0
    proximity: float = 0.1
    smoothing: float = 0.0
    absolute: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 <= value < math.inf:
                raise ValueError(
                    f"{field.name}={value}: weights must be finite and must not be negative"
                )
            # Python's own, which a checkpoint can hold.
            own = bool(value) if field.name == "absolute" else float(value)
            object.__setattr__(self, field.name, own)

    @property
    def by_hand(self) -> bool:
        """Whether `vector_step` has the gradients of these terms."""
        return self.proximity == 0 and self.smoothing == 0 and not self.absolute

    def losses_only(self) -> Objective:
        """The two losses without regularisers: a basis that is fixed has nothing to regularise."""
        return replace(self, similarity=0.0, sparsity=0.0, alignment=0.0, proximity=0.0)

    def active(self, n_generators: int) -> list[str]:
        """Names of the terms that count, in the order of their weights."""
        names = ["prediction", "equivariance", "similarity", "proximity", "sparsity"]
        if n_generators > 1:
            names.append("alignment")
        return [name for name in names if getattr(self, name) > 0]

    def terms(
        self,
        *,
        prediction: Tensor,
        y: Tensor,
        view_prediction: Tensor,
        view_target: Tensor,
        x: Float[Tensor, "batch n"],
        views: Float[Tensor, "batch views n"],
        basis: Float[Tensor, "c d d"],
    ) -> Float[Tensor, " terms"]:
        """The active terms, unweighted, in the order of `active`."""
        tau = self.smoothing
        functions = {
            "prediction": lambda: prediction_loss(
                prediction, y, absolute=self.absolute, smoothing=tau
            ),
            "equivariance": lambda: equivariance_loss(view_prediction, view_target, smoothing=tau),
            "similarity": lambda: similarity(x, views, smoothing=tau),
            "proximity": lambda: proximity(x, views),
            "sparsity": lambda: sparsity(basis, smoothing=tau),
            "alignment": lambda: alignment(basis, smoothing=tau),
        }
        return torch.stack([functions[name]() for name in self.active(len(basis))])


PAPER_TWO_BODY = Objective(
    prediction=1.0, equivariance=10.0, similarity=1.0, sparsity=1e-3, alignment=0.0, proximity=0.0
)


class Parts(Mapping[str, Tensor]):
    """The named, unweighted terms of a loss, as detached scalars."""

    def __init__(self, names: list[str], values: Float[Tensor, " terms"]) -> None:
        self.names = names
        self.values_tensor = values

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.names:
            raise KeyError(f"no term {name!r}; the active ones are {', '.join(self.names)}")
        return self.values_tensor[self.names.index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return ", ".join(f"{name} {float(value):.4g}" for name, value in self.items())


class Loss(Tensor):
    """A scalar tensor that also carries its named terms; a type for readers, never constructed."""

    parts: Parts
