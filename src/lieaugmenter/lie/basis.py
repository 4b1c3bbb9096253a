"""The generators: a learnable or fixed (c, d, d) tensor that carries its structure with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# The paper's constant; after normalisation only the ratio between entries matters.
INITIAL_VALUE = 1e-2
# Tie-breaking noise relative to INITIAL_VALUE.
_TIE_BREAK = 0.1
INITIALISATIONS = ("constant", "tie-breaking")
# 512 x 512 entries a generator: beyond it one generator outweighs most networks.
LARGEST_DIM = 512


def block_mask(blocks: Sequence[int]) -> Bool[Tensor, "d d"]:
    """Mask of square blocks along the diagonal: features interact only within their block.

    >>> block_mask([2, 1]).int()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    if not blocks or any(size < 1 for size in blocks):
        raise ValueError(f"blocks={list(blocks)}: every block needs a size of at least 1")
    return torch.block_diag(*(torch.ones(size, size) for size in blocks)).bool()


def check_mask(mask: Tensor, dim: int) -> Bool[Tensor, "d d"]:
    """A boolean (d, d) mask, or an error that says what is wrong with the one given."""
    if tuple(mask.shape) != (dim, dim):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}; a generator acts from R^{dim} to R^{dim}, "
            f"so the mask must be ({dim}, {dim})"
        )
    if not bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError("mask must hold only 0 and 1 (or False and True)")
    if not bool(mask.any()):
        raise ValueError("mask forbids every entry: no generator is left to learn")
    return mask.bool()


def is_closed(mask: Float[Tensor, "d d"]) -> bool:
    """Whether brackets of generators within the mask stay within it.

    >>> is_closed(block_mask([2, 1]).float()), is_closed(1 - torch.eye(3))
    (True, False)
    """
    allowed = (mask != 0).double()
    return not bool(((allowed @ allowed > 0) & (allowed == 0)).any())


def normalise(
    raw: Float[Tensor, "c d d"], mask: Float[Tensor, "d d"], norm: float
) -> tuple[Float[Tensor, "c d d"], Float[Tensor, "c d d"]]:
    """Mask, then scale each generator to a Frobenius norm, Eq. (38); also the factor applied."""
    length = torch.linalg.vector_norm(raw * mask, dim=(-2, -1), keepdim=True)
    factor = mask * (norm / length)
    return raw * factor, factor


def normalise_backward(
    gradient: Float[Tensor, "c d d"],
    generators: Float[Tensor, "c d d"],
    factor: Float[Tensor, "c d d"],
    norm: float,
) -> Float[Tensor, "c d d"]:
    """Gradient of `normalise` with respect to the raw generators."""
    along = (gradient * generators).sum((-2, -1), keepdim=True)
    return torch.addcmul(gradient, generators, along, value=-1.0 / norm**2) * factor


class _Normalise(torch.autograd.Function):
    """`normalise` with its gradient by hand.

    It runs in every step on a few dozen numbers, where the count of operations is the cost.
    """

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch types it *args
        ctx: Any, raw: Tensor, mask: Tensor, norm: float
    ) -> Tensor:
        generators, factor = normalise(raw, mask, norm)
        ctx.save_for_backward(generators, factor)
        ctx.norm = norm
        return generators

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        generators, factor = ctx.saved_tensors
        return normalise_backward(gradient, generators, factor, ctx.norm), None, None


class GeneratorBasis(nn.Module):
    """c generators of size d × d, learnable or fixed.

    The normalised generators are a function of the raw parameter in every forward pass: mask
    first, then scale to ‖L‖_F = √D. The mask is a buffer, so a saved basis is already masked.

    Parameters
    ----------
    n_generators, dim
        c and d.
    space_dim
        D in ‖L‖_F = √D: the dimension of the space acted on (2 for images, d for vectors).
        `dim` unless given.
    mask
        (d, d) of 0 and 1: entries that may differ from zero. All of them unless given.
    init
        ``"constant"``, the paper's (every entry 1e-2), or ``"tie-breaking"``, the same with a
        little noise, so that several generators do not start as one. Unless given: constant for
        one generator, tie-breaking for more.
    nimble
        Whether raw generators are kept from growing longer than they began, see `shorten`.
    generator
        Source of the noise.

    Examples
    --------
    >>> basis = GeneratorBasis(1, 4, mask=block_mask([2, 2]))
    >>> basis().shape, round(basis().norm().item(), 4)
    (torch.Size([1, 4, 4]), 2.0)
    """

    raw: Tensor
    mask: Tensor
    longest: Tensor | None

    def __init__(
        self,
        n_generators: int,
        dim: int,
        *,
        space_dim: int | None = None,
        mask: Tensor | None = None,
        init: str | None = None,
        nimble: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if n_generators < 1 or dim < 1:
            raise ValueError(f"n_generators={n_generators} and dim={dim}: both must be at least 1")
        if dim > LARGEST_DIM:
            raise ValueError(
                f"dim={dim}: {dim * dim:,} entries per generator and O(d³) exponentials "
                f"(at most {LARGEST_DIM} are supported). Use action='image' for pixels, or group "
                f"the features into points of a small dimension"
            )
        allowed = torch.ones(dim, dim).bool() if mask is None else check_mask(mask, dim)
        free = int(allowed.sum())
        if n_generators > free:
            within = "" if free == dim * dim else f", of which {free} entries are free,"
            raise ValueError(
                f"n_generators={n_generators}: matrices of size {dim}{within} have only {free} "
                f"independent generators"
            )
        if init is None:
            init = "constant" if n_generators == 1 else "tie-breaking"
        if init not in INITIALISATIONS:
            raise ValueError(
                f"unknown init {init!r}; choose from {', '.join(sorted(INITIALISATIONS))}"
            )
        self.norm = math.sqrt(space_dim or dim)
        raw = torch.full((n_generators, dim, dim), INITIAL_VALUE)
        if init == "tie-breaking":
            raw += torch.randn(raw.shape, generator=generator) * INITIAL_VALUE * _TIE_BREAK
        self.raw = nn.Parameter(raw)
        self.register_buffer("mask", allowed.to(raw.dtype))
        # As it was before any entry was pruned: what a run that goes on is compared by.
        self.first_mask = self.mask.clone()
        self.register_buffer("longest", self._lengths() if nimble else None)
        self.norms: list[float] = []
        self._measure()

    @classmethod
    def fixed(cls, generators: Tensor) -> GeneratorBasis:
        """A basis that is given, not learned: kept as it is, neither masked nor scaled.

        Parameters
        ----------
        generators
            (c, d, d). None of them, (0, d, d), is the algebra of the identity alone.
        """
        if generators.ndim != 3 or generators.shape[1] != generators.shape[2]:
            raise ValueError(f"generators have shape {tuple(generators.shape)}; expected (c, d, d)")
        if not bool(generators.isfinite().all()):
            raise ValueError("generators hold non-finite values")
        basis = cls(max(1, len(generators)), generators.shape[1])
        basis.mask.copy_((generators != 0).any(0))
        del basis.raw
        basis.register_buffer("raw", generators.detach().clone())
        basis._measure()
        return basis

    def _measure(self) -> None:
        """Norms of the generators, known without asking the device later."""
        if self.learnable:
            self.norms = [self.norm] * self.n_generators
        else:
            self.norms = [float(norm) for norm in self.raw.flatten(1).norm(dim=1)]

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._measure()

    @property
    def learnable(self) -> bool:
        """Whether the generators are trained."""
        return isinstance(self.raw, nn.Parameter)

    @property
    def n_generators(self) -> int:
        """Number of generators, c."""
        return self.raw.shape[0]

    @property
    def dim(self) -> int:
        """Size of their matrices, d."""
        return self.raw.shape[-1]

    def forward(self) -> Float[Tensor, "c d d"]:
        """The generators, (c, d, d): masked and of norm √D if learned, as given if fixed."""
        if not self.learnable:
            return self.raw
        return _Normalise.apply(self.raw, self.mask, self.norm)

    @torch.no_grad()
    def start_at(self, generators: Float[Tensor, "c d d"]) -> None:
        """Begin learning from given generators in place of the usual start.

        Parameters
        ----------
        generators
            As many and as large as those of the basis; entries that the mask forbids are left out.

        Examples
        --------
        >>> basis = GeneratorBasis(1, 2)
        >>> basis.start_at(torch.tensor([[[0.0, -3.0], [3.0, 0.0]]]))
        >>> basis().detach().round(decimals=3)
        tensor([[[ 0., -1.],
                 [ 1.,  0.]]])
        """
        if not self.learnable:
            raise ValueError("a fixed basis has no start: its entries are given")
        if generators.shape != self.raw.shape:
            raise ValueError(
                f"generators have shape {tuple(generators.shape)}; this basis has "
                f"{tuple(self.raw.shape)}"
            )
        masked = generators.to(self.raw) * self.mask
        lengths = masked.flatten(1).norm(dim=1)[:, None, None]
        if not bool((lengths > 0).all() and lengths.isfinite().all()):
            raise ValueError("a generator has no finite entry other than zero within the mask")
        self.raw.copy_(masked * (self.norm / lengths))
        if self.longest is not None:
            self.longest.copy_(self._lengths())

    def _lengths(self) -> Float[Tensor, "c 1 1"]:
        """Frobenius norms of the raw generators within the mask."""
        masked = self.raw.detach() * self.mask
        return torch.linalg.vector_norm(masked, dim=(-2, -1), keepdim=True)

    @torch.no_grad()
    def shorten(self) -> None:
        """Make raw generators as long as they began where they have grown, if `nimble`.

        Only their direction matters, but a step of Adam has the same length whatever theirs is:
        the longer they are, the less it turns them. Left alone they grow with every step, and a
        direction that was taken before the predictor had learned anything may never be left.

        Examples
        --------
        >>> basis = GeneratorBasis(1, 2, nimble=True)
        >>> before = basis().detach()
        >>> _ = basis.raw.data.mul_(50)
        >>> basis.shorten()
        >>> torch.allclose(basis.raw, torch.full((1, 2, 2), INITIAL_VALUE))
        True
        """
        if self.longest is not None:
            # Past autograd's count of changes: a loss that still waits for its backward pass loses
            # nothing by it. What is not finite stays so, for training to notice.
            self.raw.data.mul_((self.longest / self._lengths()).clamp(max=1.0))

    def freeze(self) -> GeneratorBasis:
        """A fixed basis with the present generators."""
        return GeneratorBasis.fixed(self().detach())

    @torch.no_grad()
    def prune(self, fraction: float) -> int:
        """Mask entries that stayed small, in place: the hard form of `sparsity`.

        Parameters
        ----------
        fraction
            Entries below this fraction of the largest one, in every generator, are zero from here
            on.

        Returns
        -------
        int
            How many entries were masked.

        Examples
        --------
        >>> basis = GeneratorBasis(1, 2)
        >>> _ = basis.raw.data.copy_(torch.tensor([[[0.01, -1.0], [1.0, 0.02]]]))
        >>> basis.prune(0.1), basis().detach().round(decimals=3)
        (2, tensor([[[ 0., -1.],
                 [ 1.,  0.]]]))
        """
        if not self.learnable:
            raise ValueError("a fixed basis has nothing to prune: its entries are given")
        if not 0 <= fraction <= 1:
            raise ValueError(f"fraction={fraction}: give one between 0 and 1")
        sizes = self().abs()
        if not bool(sizes.isfinite().all()):
            raise ValueError("the generators hold non-finite values")
        kept = (sizes >= fraction * sizes.amax((-2, -1), keepdim=True)).any(0)
        before = int(self.mask.sum())
        self.mask.mul_(kept)
        return before - int(self.mask.sum())

    def extra_repr(self) -> str:
        kind = "learnable" if self.learnable else "fixed"
        allowed = int(self.mask.sum())
        return f"{self.n_generators} {kind} of size {self.dim}, {allowed} free entries each"
