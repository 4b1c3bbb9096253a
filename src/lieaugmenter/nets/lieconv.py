"""LieConv with the trivial group: a convolution over all pairs of atoms that knows no symmetry."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor, nn
from torch.nn.functional import linear, pad, silu

from lieaugmenter.lie import kernels
from lieaugmenter.nets import lieconv_kernels
from lieaugmenter.nets.cnn import _has_hooks
from lieaugmenter.nets.cnn_kernels import shorten
from lieaugmenter.nets.lieconv_kernels import Running

# Numbers that the weights of a pair are made of, and how many weights there are.
_HIDDEN = 32
_WEIGHTS = 16
_FIELDS = ("positions", "charges", "mask")
# Features of an element: 1, c and c² of its charge c.
_POWERS = 3


class MaskedBatchNorm(nn.Module):
    """Batch norm whose statistics are those of the real entries, in float32 or better.

    As published for LieConv: where the variance is below eps it counts as eps; otherwise nothing is
    added to it. In training originals and views of a batch share the statistics.

    Parameters
    ----------
    shape
        Trailing axes of the input: each of their entries is normalised on its own.
    eps
        Smallest variance.
    momentum
        Share of a batch in the running statistics, whose variance is the unbiased one.

    Examples
    --------
    >>> x, real = torch.tensor([[1.0], [3.0], [99.0]]), torch.tensor([True, True, False])
    >>> MaskedBatchNorm(1)(x, real)[:2, 0].tolist()
    [-1.0, 1.0]
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, *shape: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps = eps
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.register_buffer("running_mean", torch.zeros(shape))
        self.register_buffer("running_var", torch.ones(shape))

    def forward(self, x: Float[Tensor, "..."], real: Bool[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Normalise.

        Parameters
        ----------
        x
            (…, *shape).
        real
            (…): which entries count.
        """
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean, variance = self.running_mean, self.running_var
        if self.training:
            mean, variance = self._statistics(wide, real)
        factor = self.factor(variance)
        return ((wide - mean) * factor + self.bias).to(x.dtype)

    def factor(self, variance: Tensor) -> Tensor:
        """What centred entries are multiplied by."""
        return variance.clamp(min=self.eps).rsqrt() * self.weight

    def _statistics(self, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        there = real.view(*real.shape, *[1] * self.weight.ndim)
        axes = tuple(range(real.ndim))
        count = real.sum().clamp(min=1)
        mean = torch.where(there, x, 0.0).sum(axes) / count
        variance = torch.where(there, x - mean, 0.0).square().sum(axes) / count
        self.track(mean, variance, count)
        return mean, variance

    @torch.no_grad()
    def track(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Let the statistics of a batch of that many entries enter the running ones."""
        unbiased = variance * count / (count - 1).clamp(min=1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)

    def running(self) -> Running:
        """What the kernels need to know."""
        return Running(self.running_mean, self.running_var, self.momentum, self.eps, self.training)


def _drawn(*shape: int) -> nn.Parameter:
    """Weights (…, inputs) as those of `torch.nn.Linear` are drawn."""
    bound = 1 / math.sqrt(shape[-1])
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


class PairNetworks(nn.Module):
    """Sixteen weights for every pair of atoms, from both positions: 6 → 32 → 32 → 16.

    Every layer is linear, batch norm over all pairs, swish. Nothing here depends on what the
    convolutions are applied to, so the networks of all blocks run together. In float32 also under
    autocast: eight bits of a position would be off by hundredths of an Ångström.

    Parameters
    ----------
    n_blocks
        How many of them.
    """

    def __init__(self, n_blocks: int) -> None:
        super().__init__()
        sizes = (_HIDDEN, _HIDDEN, _WEIGHTS)
        self.weights = nn.ParameterList(
            _drawn(n_blocks, after, before)
            for before, after in zip((6, *sizes), sizes, strict=False)
        )
        self.norms = nn.ModuleList(MaskedBatchNorm(n_blocks, size) for size in sizes)

    def forward(
        self, positions: Float[Tensor, "batch n 3"], real: Bool[Tensor, "batch n"]
    ) -> Float[Tensor, "blocks batch rows n"]:
        """The weights k_ij over the number of neighbours, (blocks, batch, n · 16, n).

        Row 16 i + m holds what atom i gives weight m of the atoms j.
        """
        first, second, third = self.weights
        pairs = real.unsqueeze(1) & real.unsqueeze(2)
        with torch.autocast(positions.device.type, enabled=False):
            positions = positions.to(first.dtype)
            # The first layer of a pair is a sum of what each atom gives.
            own = torch.einsum("bid,lhd->bilh", positions, first[..., :3])
            other = torch.einsum("bjd,lhd->bjlh", positions, first[..., 3:])
            y = silu(self.norms[0](own.unsqueeze(2) + other.unsqueeze(1), pairs))
            for weight, norm in ((second, self.norms[1]), (third, self.norms[2])):
                y = silu(norm(torch.einsum("bijlh,lgh->bijlg", y, weight), pairs))
            shares = torch.where(pairs, inverse_counts(real, y.dtype), 0.0)[..., None, None]
            y = y * shares
        return y.permute(3, 0, 1, 4, 2).flatten(2, 3)

    def first_layer(
        self, positions: Float[Tensor, "batch n 3"], real: Bool[Tensor, "batch n"]
    ) -> Float[Tensor, "blocks 7 hidden"]:
        """The first layer and its batch norm as one affine map of (x_i, x_j).

        The columns of its matrix, and then its shift.

        Before the first swish all is linear, so that the statistics over pairs follow from mean and
        covariance of the positions, and no pair need be looked at.
        """
        first, norm = self.weights[0], self.norms[0]
        assert isinstance(norm, MaskedBatchNorm)
        if not norm.training:
            return _affine(first, norm, norm.running_mean, norm.running_var)
        with torch.autocast(positions.device.type, enabled=False):
            counts = real.sum(1, keepdim=True).to(positions.dtype)
            n_pairs = counts.square().sum().clamp(min=1)
            # Every atom is in as many pairs as its molecule has atoms.
            shares = (real * counts / n_pairs).unsqueeze(-1)
            centre = (shares * positions).sum((0, 1))
            centred = (positions - centre) * real.unsqueeze(-1)
            same = torch.einsum("bid,bie->de", shares * centred, centred)
            sums = centred.sum(1)
            cross = sums.mT @ sums / n_pairs
            covariance = torch.cat([torch.cat([same, cross], 1), torch.cat([cross, same], 1)])
            mean = first @ torch.cat([centre, centre])
            variance = ((first @ covariance) * first).sum(-1)
            norm.track(mean, variance, n_pairs)
            return _affine(first, norm, mean, variance)


def _affine(matrix: Tensor, norm: MaskedBatchNorm, mean: Tensor, variance: Tensor) -> Tensor:
    """Columns and shift of a linear map that is followed by a batch norm."""
    factor = norm.factor(variance)
    shift = norm.bias - mean * factor
    return torch.cat([(matrix * factor.unsqueeze(-1)).mT, shift.unsqueeze(1)], dim=1)


def inverse_counts(real: Bool[Tensor, "batch n"], dtype: torch.dtype) -> Float[Tensor, "batch 1 1"]:
    """One over the number of real atoms, (batch, 1, 1)."""
    return real.sum(1).clamp(min=1).to(dtype).reciprocal().view(-1, 1, 1)


class Bottleneck(nn.Module):
    """x plus: down to a quarter of the width, a convolution over all pairs, up again.

    Before each of the three come batch norm and swish. The two linear maps have no bias: batch
    norms are all that follows, and they would take it out again.

    Parameters
    ----------
    width
        Channels of x.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = width // 4
        self.norms = nn.ModuleList(MaskedBatchNorm(size) for size in (width, inner, inner))
        self.down = nn.Linear(width, inner, bias=False)
        self.mix = nn.Linear(_WEIGHTS * inner, inner)
        self.up = nn.Linear(inner, width, bias=False)

    def forward(
        self,
        x: Float[Tensor, "batch n width"],
        pair_weights: Float[Tensor, "batch rows n"],
        real: Bool[Tensor, "batch n"],
    ) -> Float[Tensor, "batch n width"]:
        y = self.down(silu(self.norms[0](x, real)))
        y = silu(self.norms[1](y, real))
        # For atom i and weight m: the sum over j of k_ij^m y_j, all of them in one product.
        gathered = (pair_weights @ y).view(*x.shape[:2], -1)
        y = linear(gathered, self.mix.weight) + self.mix.bias * inverse_counts(real, y.dtype)
        return x + self.up(silu(self.norms[2](y, real)))


class LieConv(nn.Module):
    """LieConv of the trivial group: molecules to numbers that depend on their place and direction.

    Convolutions over all pairs of atoms, whose weights are functions of both positions, in
    pre-activation residual blocks; the mean over atoms is read out. Permuting atoms changes
    nothing; moving them does. With the defaults 21,302,593 parameters. The published network has
    13,536 more, biases that a batch norm takes out again, and leaves out the few per cent of pairs
    that are farthest apart.

    On a GPU in bfloat16, under autocast or by `in_half`, training and prediction run through
    `lieconv_kernels`: the same numbers up to rounding, but differentiable only once. In evaluation
    mode with gradients, and for molecules of more than 32 atoms, the layers run.

    Parameters
    ----------
    n_outputs
        Numbers to predict.
    width
        k, the channels of an atom; a multiple of 4.
    n_blocks
        Residual blocks.
    elements
        Nuclear charges that occur. An atom's features are 1, c, c² in the place of its element,
        with c its charge over the largest. Another element is refused; on a GPU it makes the
        prediction NaN.
    atoms_per_molecule
        For steps that are captured in a CUDA graph, whose sizes are fixed: a bound on the mean
        number of atoms of the molecules of a batch. There is room for as many, instead of for all
        padding; molecules without room get NaN. Elsewhere the atoms are counted.
    in_half
        Whether a GPU computes in bfloat16 without being told so by autocast, where it can: for
        predictions at the speed, and with the rounding, of training.

    Examples
    --------
    >>> water = {
    ...     "positions": torch.tensor([[[0, 0, 0.12], [0, 0.76, -0.48], [0, -0.76, -0.48]]]),
    ...     "charges": torch.tensor([[8, 1, 1]]),
    ...     "mask": torch.ones(1, 3),
    ... }
    >>> LieConv(width=16, n_blocks=2)(water).shape
    torch.Size([1, 1])
    """

    element_charges: Tensor

    def __init__(
        self,
        n_outputs: int = 1,
        *,
        width: int = 1536,
        n_blocks: int = 6,
        elements: Sequence[int] = (1, 6, 7, 8, 9),
        atoms_per_molecule: float | None = None,
        in_half: bool = False,
    ) -> None:
        super().__init__()
        if width < 4 or width % 4:
            raise ValueError(f"width={width}: give a multiple of 4")
        if n_blocks < 1:
            raise ValueError(f"n_blocks={n_blocks}: at least 1")
        self.atoms_per_molecule = atoms_per_molecule
        self.in_half = in_half
        self.register_buffer("element_charges", torch.tensor(sorted(elements)), persistent=False)
        # Without bias for the reason given in Bottleneck.
        self.embedding = nn.Linear(_POWERS * len(elements), width, bias=False)
        self.pairs = PairNetworks(n_blocks)
        self.blocks = nn.ModuleList(Bottleneck(width) for _ in range(n_blocks))
        self.norm = MaskedBatchNorm(width)
        self.readout = nn.Linear(width, n_outputs)

    def forward(self, x: Mapping[str, Tensor]) -> Float[Tensor, "batch outputs"]:
        """Predict.

        Parameters
        ----------
        x
            A batch of molecules: ``"positions"`` (batch, n, 3) in Ångström, ``"charges"``
            (batch, n), ``"mask"`` (batch, n), non-zero for real atoms.
        """
        missing = [name for name in _FIELDS if name not in x]
        if missing:
            raise ValueError(f"the molecules have no field {missing[0]!r}; they have {list(x)}")
        positions, charges, real = x["positions"], x["charges"], x["mask"].bool()
        self._check(positions, charges, real)
        if self._takes_kernels(positions):
            return self._forward_by_kernels(positions, charges, real)
        pair_weights = self.pairs(positions, real)
        y = self.embedding(self.features(charges))
        for block, of_block in zip(self.blocks, pair_weights, strict=True):
            y = block(y, of_block, real)
        y = silu(self.norm(y, real)).to(self.readout.weight.dtype)
        # The mean before the linear map is the mean after it, and can stay in full precision.
        shares = torch.where(real.unsqueeze(-1), inverse_counts(real, y.dtype), 0.0)
        return self._read_out((y * shares).sum(1))

    def _check(self, positions: Tensor, charges: Tensor, real: Tensor) -> None:
        for name, field in (("charges", charges), ("mask", real)):
            if field.shape != positions.shape[:-1]:
                raise ValueError(
                    f"{name} have the shape {tuple(field.shape)}, positions "
                    f"{tuple(positions.shape)}; expected {tuple(positions.shape[:-1])}"
                )
        # A GPU would have to be waited for, and a transformed or traced call has no values.
        if charges.is_cuda or torch.compiler.is_compiling() or kernels.transforming():
            return
        unknown = set(charges[real].unique().tolist()) - set(self.element_charges.tolist())
        if unknown:
            raise ValueError(
                f"charges of unknown elements: {sorted(unknown)}; this network was made with "
                f"elements={tuple(self.element_charges.tolist())}"
            )

    def features(self, charges: Num[Tensor, "*atoms"]) -> Float[Tensor, "*atoms features"]:
        """1, c and c² in the place of an atom's element.

        Zeros for charge 0, which is padding, and NaN for a charge that is no known element's.
        """
        which = charges.unsqueeze(-1) == self.element_charges
        unknown = (charges != 0) & ~which.any(-1)
        scaled = charges.to(self.embedding.weight.dtype) / self.element_charges[-1]
        scaled = torch.where(unknown, torch.nan, scaled)
        powers = torch.stack([scaled**power for power in range(_POWERS)], dim=-1)
        return (which.unsqueeze(-1) * powers.unsqueeze(-2)).flatten(-2)

    def _read_out(self, pooled: Tensor) -> Tensor:
        with torch.autocast(pooled.device.type, enabled=False):
            return self.readout(pooled)

    def _takes_kernels(self, positions: Tensor) -> bool:
        """Whether this is a plain call on a GPU in bfloat16."""
        lowered = torch.is_autocast_enabled("cuda")
        lowered = lowered and torch.get_autocast_dtype("cuda") == torch.bfloat16
        return (
            positions.is_cuda
            and kernels.available()
            and (lowered or self.in_half)
            and not torch.compiler.is_compiling()
            and not kernels.transforming()
            and (self.training or not torch.is_grad_enabled())
            and self._fits_kernels(positions)
        )

    def _fits_kernels(self, positions: Tensor) -> bool:
        """Whether molecules and parameters are what the kernels expect; they check nothing."""
        parameters, sizes = list(self.parameters()), (len(positions), positions.shape[1])
        return (
            positions.numel() > 0
            and all(p.dtype == torch.float32 and p.device == positions.device for p in parameters)
            and lieconv_kernels.fits(*sizes, self.readout.in_features, len(self.blocks))
            and not _has_hooks(self)
        )

    def _rows(self, real: Bool[Tensor, "batch n"]) -> int:
        """Atoms that there is to be room for, without padding if their number can be known."""
        if not (real.is_cuda and torch.cuda.is_current_stream_capturing()):
            return int(real.sum())
        if self.atoms_per_molecule is None:
            return real.numel()
        return min(math.ceil(self.atoms_per_molecule * len(real)), real.numel())

    def _forward_by_kernels(
        self,
        positions: Float[Tensor, "batch n 3"],
        charges: Num[Tensor, "batch n"],
        real: Bool[Tensor, "batch n"],
        dtype: torch.dtype = torch.bfloat16,
    ) -> Float[Tensor, "batch outputs"]:
        """The same network on real atoms only, one after the other in the rows of a matrix."""
        packing = lieconv_kernels.pack(real, self._rows(real))
        outer = [*(block.norms[0] for block in self._bottlenecks()), self.norm]
        with torch.autocast(positions.device.type, enabled=False):
            embedding, *layers = shorten(dtype, self.embedding.weight, *self._layers())
            pair_weights = self._pair_weights(positions.float(), real, packing, dtype)
            features = self.features(charges.flatten()[packing.slots]) * packing.there
            # Tensor cores want a multiple of eight.
            missing = (0, -features.shape[-1] % 8)
            x = linear(pad(features.to(dtype), missing), pad(embedding, missing))
            y = lieconv_kernels.norm_swish(x, *_norm(outer[0]), packing)
            for index, block in enumerate(self._bottlenecks()):
                down, mix, bias, up = layers[4 * index : 4 * index + 4]
                y = lieconv_kernels.norm_swish(linear(y, down), *_norm(block.norms[1]), packing)
                y = lieconv_kernels.convolve(pair_weights[index], y, packing)
                y = torch.addmm(packing.inverse.to(dtype).outer(bias), y, mix.mT)
                y = lieconv_kernels.norm_swish(y, *_norm(block.norms[2]), packing)
                following = _norm(outer[index + 1])
                x, y = lieconv_kernels.add_norm_swish(x, linear(y, up), *following, packing)
            prediction = self._read_out(lieconv_kernels.pool(y, packing))
            return torch.where(packing.fits, prediction, torch.nan)

    def _bottlenecks(self) -> list[Bottleneck]:
        return [block for block in self.blocks if isinstance(block, Bottleneck)]

    def _layers(self) -> list[Tensor]:
        """What every block multiplies with and adds, in its order: four tensors of each."""
        return [
            tensor
            for block in self._bottlenecks()
            for tensor in (block.down.weight, block.mix.weight, block.mix.bias, block.up.weight)
        ]

    def _pair_weights(
        self,
        positions: Tensor,
        real: Tensor,
        packing: lieconv_kernels.Packing,
        dtype: torch.dtype,
    ) -> tuple[Tensor, ...]:
        first = self.pairs.first_layer(positions, real)
        second, third = self.pairs.weights[1], self.pairs.weights[2]
        rows = positions.flatten(0, 1).index_select(0, packing.slots)
        return lieconv_kernels.pair_weights(
            rows, first,
            second, *_norm(self.pairs.norms[1]),
            third, *_norm(self.pairs.norms[2]),
            packing, dtype,
        )  # fmt: skip


def _norm(norm: nn.Module) -> tuple[Tensor, Tensor, Running]:
    assert isinstance(norm, MaskedBatchNorm)
    return norm.weight, norm.bias, norm.running()
