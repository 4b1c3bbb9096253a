"""A random transform by a group that was found, for any pipeline of torch modules."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lieaugmenter.actions.base import Action, Batch, batch_size, map_tensors, tensors_of
from lieaugmenter.lie.elements import Elements
from lieaugmenter.lie.samplers import Sampler, make_sampler

# Exact generators are computed, and what is zero in them is so up to this.
_ROUNDING = 1e-6


class RandomTransform(nn.Module):
    """Moves every sample of a batch by a random element exp(Σ wᵢ Lᵢ) of its own.

    The generators and their ranges are buffers: the state can be kept in a safetensors file.

    Parameters
    ----------
    action
        How elements move samples.
    generators
        (c, d, d); with c = 0 nothing moves.
    ranges
        The largest |wᵢ| of each generator; for the normal law, the standard deviation.
    law
        Of the coefficients: a name of a sampler, ``"uniform"`` unless given.
    sample_ndim
        Number of axes of one sample. If given, a single sample may come without a batch axis.

    Examples
    --------
    >>> from lieaugmenter.actions import VectorAction
    >>> from lieaugmenter.lie.catalogue import so
    >>> turn = RandomTransform(VectorAction(2), so(2), [3.14])
    >>> x = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    >>> turn(x, generator=0).norm(dim=1).round(decimals=3)
    tensor([5., 1.])
    """

    generators: Tensor
    ranges: Tensor

    def __init__(
        self,
        action: Action,
        generators: Float[Tensor, "c d d"],
        ranges: Sequence[float] | Tensor,
        *,
        law: str = "uniform",
        sample_ndim: int | None = None,
    ) -> None:
        super().__init__()
        if generators.ndim != 3 or generators.shape[1:] != (action.dim, action.dim):
            raise ValueError(
                f"generators have shape {tuple(generators.shape)}; {action} needs "
                f"(c, {action.dim}, {action.dim})"
            )
        if len(ranges) != len(generators):
            raise ValueError(f"{len(ranges)} ranges for {len(generators)} generators")
        self.action = action
        self.sample_ndim = sample_ndim
        self.register_buffer("generators", generators.detach().clone())
        self.register_buffer("ranges", torch.as_tensor(ranges, dtype=generators.dtype).clone())
        self._check()
        # Draws reach 1, or the largest range on a grid of whole numbers; a learned range is the
        # bound of a uniform law.
        self.law = "uniform" if law == "learnable" else law
        self.sampler = self._make_sampler()
        self.register_load_state_dict_post_hook(_follow_state)

    def _check(self) -> None:
        if not bool(self.generators.isfinite().all()):
            raise ValueError("the generators hold non-finite values")
        if bool((self.generators[:, self.action.rows :].abs() > _ROUNDING).any()):
            raise ValueError(
                f"the generators have entries that {self.action} has no place for: in homogeneous "
                f"coordinates the last row of a generator is zero"
            )
        if not bool(((self.ranges >= 0) & self.ranges.isfinite()).all()):
            raise ValueError(
                f"ranges={self.ranges.tolist()}: the largest coefficients must be finite and not "
                f"negative"
            )

    def _make_sampler(self) -> Sampler:
        return make_sampler(self.law, self._reach(), len(self.generators))

    def _reach(self) -> float:
        return max(self.ranges.tolist(), default=1.0) if self.law == "integer-grid" else 1.0

    def forward(self, x: Batch, generator: torch.Generator | int | None = None) -> Batch:
        """A transformed copy of a batch, of the same shape.

        Parameters
        ----------
        x
            (batch, …), or one sample if `sample_ndim` was given.
        generator
            Source of the coefficients: a generator on the device of this module, or a seed;
            torch's global one unless given.
        """
        if self.sample_ndim is not None and tensors_of(x)[0].ndim == self.sample_ndim:
            alone = map_tensors(lambda t: t.unsqueeze(0), x)
            return map_tensors(lambda t: t.squeeze(0), self(alone, generator))
        self.action.check(x, "x")
        if not len(self.generators):
            return map_tensors(torch.clone, x)
        elements = self.elements(batch_size(x), generator)
        return map_tensors(lambda t: t.squeeze(1), self.action.act(elements, x))

    def elements(self, batch: int, generator: torch.Generator | int | None = None) -> Elements:
        """The elements that `forward` moves a batch by, one for each sample."""
        if isinstance(generator, int):
            generator = torch.Generator(self.generators.device).manual_seed(generator)
        coefficients = self.sampler((batch, 1, len(self.generators)), generator)
        if self.law != "integer-grid":
            coefficients = coefficients * self.ranges
        return Elements(
            coefficients.to(self.generators.dtype), self.generators, rows=self.action.rows
        )

    def extra_repr(self) -> str:
        return f"{self.action}, {len(self.generators)} generators"


def _follow_state(transform: RandomTransform, _: object) -> None:
    """Check what was loaded, and draw as far as it says: a grid has its range in the sampler."""
    transform._check()
    transform.sampler = transform._make_sampler().to(transform.ranges.device)
