"""Coefficients of the generators: how far, and by which law, the elements reach."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

# The range grows in at most this many steps: each of them is an operation on the device.
_LEVELS = 200
# A normal law is cut here, so that the exponential's degree is known in advance (P = 6e-7).
_NORMAL_CUT = 5.0
# However wide it is, the range has grown by then: the rest of training is for all of it.
_LONGEST_WARMUP = 0.6


class Sampler(nn.Module, ABC):
    """Draws coefficients w, (batch, views, factors, c); the paper's P(γ).

    The range can grow during the first steps of training: from `warmup_start` · γ to γ over
    `warmup_steps` calls of `advance`. Near the identity a symmetry is visible in the data, far
    from it often not, so a range that starts small finds what a fixed one misses.

    Parameters
    ----------
    range
        γ: the largest coefficient (for the normal law, the standard deviation).
    warmup_steps, warmup_start
        Length of the warm-up in training steps (0: none) and the fraction of γ it starts from.
    """

    grown: Tensor
    step: Tensor

    def __init__(self, range: float, *, warmup_steps: int = 0, warmup_start: float = 0.1) -> None:
        super().__init__()
        if not (range > 0 and math.isfinite(range)):
            raise ValueError(f"range={range}: the range of the coefficients must be positive")
        whole = float(warmup_steps).is_integer()
        if not (whole and warmup_steps >= 0 and 0 < warmup_start <= 1):
            raise ValueError(
                f"warmup_steps={warmup_steps}, warmup_start={warmup_start}: the warm-up needs a "
                f"whole number of steps, at least 0, and a start above 0 and at most 1"
            )
        self.range = float(range)
        self.warmup_steps = int(warmup_steps)
        self.warmup_start = warmup_start
        # The fraction of γ in use: a tensor, so that a captured CUDA graph sees it grow and a
        # checkpoint carries it.
        self.register_buffer("grown", torch.ones(()))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self._steps_taken = 0
        if warmup_steps:
            self.grown.fill_(warmup_start)
        self.register_state_dict_pre_hook(_write_steps)

    def advance(self) -> None:
        """Count one training step of the warm-up."""
        if self._steps_taken >= self.warmup_steps:
            return
        before = self._grown_to()
        self._steps_taken += 1
        if self._grown_to() != before:
            self.grown.fill_(self._grown_to())

    def _grown_to(self) -> float:
        """The value of `grown`, without asking the device."""
        if not self.warmup_steps:
            return 1.0
        levels = min(_LEVELS, self.warmup_steps)
        level = self._steps_taken * levels // self.warmup_steps
        return min(1.0, self.warmup_start + (1.0 - self.warmup_start) * level / levels)

    @property
    def steps_taken(self) -> int:
        """Steps of the warm-up so far, without asking the device."""
        return self._steps_taken

    @property
    def share(self) -> float:
        """The fraction of the full range that draws make use of."""
        return self._grown_to()

    def recount(self) -> None:
        """Take the count of steps from the buffer, after it was written from outside."""
        # A state from a longer warm-up counts as the end of this one.
        self._steps_taken = min(int(self.step), self.warmup_steps)
        self.grown.fill_(self._grown_to())

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.recount()

    @abstractmethod
    def forward(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "..."]:
        """Coefficients of the given shape (..., c), reparameterised where γ is learned."""

    def _uniform(
        self, shape: tuple[int, ...], generator: torch.Generator | None, largest: float = 1.0
    ) -> Tensor:
        """Numbers uniform on [-largest, largest]."""
        empty = torch.empty(shape, dtype=self.grown.dtype, device=self.grown.device)
        return empty.uniform_(-largest, largest, generator=generator)

    def _warmed(self, coefficients: Tensor) -> Tensor:
        """Coefficients of full range, shrunk to what the warm-up has reached."""
        return coefficients * self.grown if self.warmup_steps else coefficients

    @property
    def reach(self) -> float:
        """The largest coefficient that can be drawn."""
        return self.range

    def ranges(self) -> Tensor:
        """The present range, a scalar or one for each generator."""
        return self.grown * self.range if self.warmup_steps else self.grown.new_tensor(self.range)

    def extra_repr(self) -> str:
        warm = f", grows over {self.warmup_steps} steps" if self.warmup_steps else ""
        return f"range={self.range:g}{warm}"


def _write_steps(sampler: Sampler, *_: object) -> None:
    """Put the count of steps into its buffer, which is only needed where it is saved."""
    sampler.step.fill_(sampler._steps_taken)


class Uniform(Sampler):
    """w ~ U[-γ, γ], the paper's choice."""

    def forward(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "..."]:
        return self._warmed(self._uniform(shape, generator, self.range))


class IntegerGrid(Sampler):
    """w uniform on the integers -γ, …, γ, both ends included: discrete symmetries.

    A warm-up shrinks the set of integers, not the integers: the grid stays a grid.
    """

    def __init__(self, range: float, *, warmup_steps: int = 0, warmup_start: float = 0.1) -> None:
        super().__init__(range, warmup_steps=warmup_steps, warmup_start=warmup_start)
        if range != int(range):
            raise ValueError(f"range={range}: an integer grid needs a whole number")

    @property
    def share(self) -> float:
        return max(1.0, round(self.range * self._grown_to())) / self.range

    def forward(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "..."]:
        largest = (self.range * self.grown).round().clamp(min=1.0)
        # [-m - 1/2, m + 1/2] rounded: every integer of -m … m with the same probability.
        spread = (self._uniform(shape, generator) * (largest + 0.5)).round()
        return torch.minimum(torch.maximum(spread, -largest), largest)


class Normal(Sampler):
    """w ~ N(0, γ²), cut at five standard deviations."""

    def forward(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "..."]:
        empty = torch.empty(shape, dtype=self.grown.dtype, device=self.grown.device)
        normal = empty.normal_(generator=generator).clamp_(-_NORMAL_CUT, _NORMAL_CUT)
        return self._warmed(normal.mul_(self.range))

    @property
    def reach(self) -> float:
        return _NORMAL_CUT * self.range


class LearnableRange(Sampler):
    """w_i ~ U[-γ_i, γ_i] with γ_i learned for each generator, between 0 and a cap.

    γ_i = cap · sigmoid(θ_i), so the cap cannot be passed and the gradient reaches θ through the
    reparameterised draw.

    Parameters
    ----------
    range
        Where every γ_i starts.
    n_generators
        c.
    cap
        The largest γ_i; twice the start unless given.
    """

    def __init__(
        self,
        range: float,
        n_generators: int,
        *,
        cap: float | None = None,
        warmup_steps: int = 0,
        warmup_start: float = 0.1,
    ) -> None:
        super().__init__(range, warmup_steps=warmup_steps, warmup_start=warmup_start)
        self.cap = float(2 * range if cap is None else cap)
        if not self.cap > range:
            raise ValueError(f"cap={self.cap:g} must be larger than the starting range {range:g}")
        start = math.log(range / (self.cap - range))
        self.logit = nn.Parameter(torch.full((n_generators,), start))

    def learned(self) -> Float[Tensor, " c"]:
        """γ_i at the end of the warm-up."""
        return self.cap * torch.sigmoid(self.logit)

    def forward(
        self, shape: tuple[int, ...], generator: torch.Generator | None = None
    ) -> Float[Tensor, "..."]:
        return self._warmed(self._uniform(shape, generator) * self.learned())

    @property
    def reach(self) -> float:
        return self.cap

    def ranges(self) -> Tensor:
        learned = self.learned().detach()
        return learned * self.grown if self.warmup_steps else learned


def warmup_share(share: float, range: float, usual: float) -> float:
    """The share of training over which a range grows: as much longer as it is wider than usual.

    A wide range that grew as fast in proportion would leave the neighbourhood of the identity
    before anything was learned there.

    Parameters
    ----------
    share
        Of training, for the usual range.
    range, usual
        γ, and the one that `share` belongs to.

    Examples
    --------
    >>> [round(warmup_share(0.15, gamma, 3.0), 2) for gamma in (1.0, 3.0, 8.0, 21.0)]
    [0.15, 0.15, 0.4, 0.6]
    """
    return max(share, min(_LONGEST_WARMUP, share * range / usual))


SAMPLERS = ("integer-grid", "learnable", "normal", "uniform")


def make_sampler(
    name: str, range: float, n_generators: int, *, warmup_steps: int = 0, warmup_start: float = 0.1
) -> Sampler:
    """The sampler of that name.

    >>> make_sampler("uniform", 2.0, 1)
    Uniform(range=2)
    """
    if name == "learnable":
        return LearnableRange(
            range, n_generators, warmup_steps=warmup_steps, warmup_start=warmup_start
        )
    kinds = {"integer-grid": IntegerGrid, "normal": Normal, "uniform": Uniform}
    if name not in kinds:
        raise ValueError(f"unknown sampler {name!r}; choose from {', '.join(SAMPLERS)}")
    return kinds[name](range, warmup_steps=warmup_steps, warmup_start=warmup_start)
