"""Networks that are equivariant under given generators whatever their weights.

V is the space that the generators act on, U = V ⊕ R the same with a scalar that nothing moves.
Hidden layers hold copies of U, vectors each with a scalar of its own. Every linear map is taken
from the null space of the equations that make it equivariant, after Finzi et al. 2021.

Points that are also translated are written in homogeneous coordinates, (p, 1). Beside them V holds
what is left of a point when the mean of its sample is taken off, which no translation moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lieaugmenter.lie.basis import GeneratorBasis
from lieaugmenter.lie.catalogue import lift

OUTPUTS = ("invariant", "same", "vector")
# Finzi et al.: products of features are small beside the features.
_PRODUCTS = 0.1
# Products of two vectors to a vector have d³ entries to solve for; above this size they are left
# out.
_LARGEST_PRODUCT = 8
# Outputs that vary less than this between random samples do not vary.
_VARIES = 1e-6


def equivariant_maps(
    source: Float[Tensor, "c a a"], target: Float[Tensor, "c b b"], tolerance: float = 1e-5
) -> Float[Tensor, "k b a"]:
    """Linear maps M with T_i M = M S_i for every pair of generators, an orthonormal basis.

    With one representation as source and target this is its commutant; from V to its dual, with
    generators -Lᵀ, the preserved bilinear forms; from the trivial one, the invariant vectors.

    Parameters
    ----------
    source, target
        Generators S_i and T_i of the two representations.
    tolerance
        Singular values of the equations up to this fraction of the largest count as zero. A
        generator that was learned needs about its own relative error, 5e-3 say.

    Examples
    --------
    What commutes with a rotation of the plane: turns and scalings, the complex numbers.

    >>> from lieaugmenter.lie.catalogue import so
    >>> equivariant_maps(so(2), so(2)).shape
    torch.Size([2, 2, 2])
    """
    a, b = source.shape[-1], target.shape[-1]
    on_source, on_target = (torch.eye(n, dtype=torch.float64) for n in (a, b))
    # T M - M S, entry (p, i), as a combination of the entries (q, j) of M.
    left = torch.einsum("cpq,ij->cpiqj", target.detach().double().cpu(), on_source)
    right = torch.einsum("pq,cji->cpiqj", on_target, source.detach().double().cpu())
    equations = (left - right).reshape(-1, b * a)
    _, sizes, directions = torch.linalg.svd(equations, full_matrices=False)
    return directions[sizes <= tolerance * sizes.max()].view(-1, b, a).to(source)


def tensor_square(generators: Float[Tensor, "c d d"]) -> Float[Tensor, "c e e"]:
    """Generators on V ⊗ V, L ⊗ 1 + 1 ⊗ L: of size d².

    Examples
    --------
    The cross product is the one equivariant product of two vectors of space:

    >>> from lieaugmenter.lie.catalogue import so
    >>> equivariant_maps(tensor_square(so(3)), so(3)).shape
    torch.Size([1, 3, 9])
    """
    one = torch.eye(generators.shape[-1], dtype=generators.dtype, device=generators.device)
    return torch.stack([torch.kron(g, one) + torch.kron(one, g) for g in generators])


class EquivariantLinear(nn.Module):
    """Any equivariant affine map from copies of one representation to copies of another.

    Parameters
    ----------
    source, target
        Generators of the two representations, (c, a, a) and (c, b, b).
    n_in, n_out
        Numbers of copies.
    tolerance
        See `equivariant_maps`.
    """

    maps: Tensor
    offsets: Tensor

    def __init__(
        self, source: Tensor, target: Tensor, n_in: int, n_out: int, tolerance: float
    ) -> None:
        super().__init__()
        maps = equivariant_maps(source, target, tolerance)
        trivial = torch.zeros_like(source[:, :1, :1])
        offsets = equivariant_maps(trivial, target, tolerance).squeeze(-1)
        self.register_buffer("maps", maps)
        self.register_buffer("offsets", offsets)
        # Inputs of mean square one give outputs of mean square one.
        scale = math.sqrt(target.shape[-1] / max(1, n_in * len(maps)))
        self.weight = nn.Parameter(scale * maps.new_empty(n_out, n_in, len(maps)).normal_())
        self.bias = nn.Parameter(maps.new_zeros(n_out, len(offsets)))

    def forward(self, x: Float[Tensor, "batch *n"]) -> Float[Tensor, "batch m b"]:
        matrix = torch.einsum("oik,kba->obia", self.weight, self.maps).flatten(2).flatten(0, 1)
        bias = self.bias @ self.offsets
        return functional.linear(x.flatten(1), matrix, bias.flatten()).unflatten(1, bias.shape)


class EquivariantProduct(nn.Module):
    """Any equivariant bilinear map of two vectors to a vector, a channel at a time.

    Parameters
    ----------
    vector
        Generators of V, (c, d, d).
    n
        Number of channels.
    tolerance
        See `equivariant_maps`.
    """

    maps: Tensor

    def __init__(self, vector: Tensor, n: int, tolerance: float) -> None:
        super().__init__()
        maps = equivariant_maps(tensor_square(vector), vector, tolerance)
        self.register_buffer("maps", maps.unflatten(-1, vector.shape[1:]))
        scale = math.sqrt(vector.shape[-1] / max(1, len(maps)))
        self.weight = nn.Parameter(scale * maps.new_empty(n, len(maps)).normal_())

    def forward(
        self, x: Float[Tensor, "batch n d"], y: Float[Tensor, "batch n d"]
    ) -> Float[Tensor, "batch n d"]:
        tensors = torch.einsum("nk,kbij->nbij", self.weight, self.maps)
        return torch.einsum("nbij,xni,xnj->xnb", tensors, x, y)


class GatedBlock(nn.Module):
    """To copies of U: an equivariant affine map, products of its outputs, gates.

    The products are those of Finzi et al. a channel at a time: its vector with a combination of
    all vectors, by the preserved bilinear forms, to a scalar; its scalar with another combination
    to a vector. The channels are mixed before and after.

    Parameters
    ----------
    source
        Generators of the representation of its inputs.
    vector
        Generators of V.
    n_in, n_out
        Numbers of copies.
    tolerance
        See `equivariant_maps`.
    products
        Also multiply vectors to vectors, as the cross product does.
    """

    def __init__(
        self,
        source: Tensor,
        vector: Tensor,
        n_in: int,
        n_out: int,
        tolerance: float,
        *,
        products: bool = False,
    ) -> None:
        super().__init__()
        self.linear = EquivariantLinear(source, lift(vector), n_in, n_out, tolerance)
        both = torch.stack([torch.block_diag(g, -g.mT) for g in vector])
        self.partners = EquivariantLinear(vector, both, n_out, n_out, tolerance)
        self.products = EquivariantProduct(vector, n_out, tolerance) if products else None

    def forward(self, x: Float[Tensor, "batch *n"]) -> Float[Tensor, "batch m u"]:
        features = self.linear(x)
        vectors, scalars = features[..., :-1], features[..., -1:]
        mixed, covectors = self.partners(vectors).chunk(2, dim=-1)
        gates = scalars + _PRODUCTS * (vectors * covectors).sum(-1, keepdim=True)
        longer = vectors + _PRODUCTS * scalars * mixed
        if self.products is not None:
            longer = longer + _PRODUCTS * self.products(vectors, mixed)
        # Twice the sigmoid: a gate of zero leaves its vector as it is, at any depth.
        return torch.cat([2 * gates.sigmoid() * longer, functional.silu(gates)], dim=-1)


class OverPoints(nn.Module):
    """A layer on every point of a set, which sees the point's features and the set's mean.

    Parameters
    ----------
    layer
        Maps (batch, 2n, a) to (batch, m, b).
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Float[Tensor, "batch points n a"]) -> Float[Tensor, "batch points m b"]:
        both = torch.cat([x, x.mean(1, keepdim=True).expand_as(x)], dim=2)
        return self.layer(both.flatten(0, 1)).unflatten(0, x.shape[:2])


class MeanOverPoints(nn.Module):
    """The mean of the points' features: the order of the points is forgotten."""

    def forward(self, x: Float[Tensor, "batch points n a"]) -> Float[Tensor, "batch n a"]:
        return x.mean(1)


class EquivariantNetwork(nn.Module):
    """A network that is equivariant under given generators, to rounding, whatever its weights.

    The dtype and the device of the generators are those of the network; convert them first, not
    the network, whose fixed matrices are rounded when it is built.

    It sees what invariant vectors, linear maps, bilinear forms and products of vectors on V can
    tell. Where V has none of the latter, as under scalings, it is a linear map.

    Parameters
    ----------
    generators
        (c, d, d).
    in_shape, out_shape
        Shapes of one sample and of one output, without the batch axis: (d,) or (n, d), vectors
        that all move alike; (k,) for k invariant outputs.
    output
        ``"invariant"``: outputs do not move; ``"same"``: they move as inputs do; ``"vector"``: they
        are vectors of d numbers, which are not translated: one for each input, or any number.
    affine
        The generators are homogeneous, of size d + 1 with the last row zero, and move points of d
        coordinates. With ``output="same"`` the network then gives displacements, which are added
        to its inputs.
    exchangeable
        The n vectors of a sample are a set: their order says nothing (Deep Sets). Otherwise each
        has weights of its own.
    hidden
        Numbers of copies of U in the hidden layers.
    scale
        Inputs are divided by it, and outputs that move as they do are multiplied by it.
    products
        Also multiply vectors to vectors; left out where d is above 8.
    tolerance
        See `equivariant_maps`.

    Examples
    --------
    >>> from lieaugmenter.lie.catalogue import so
    >>> model = EquivariantNetwork(so(3), (3,), (1,), hidden=(8,))
    >>> x, half_turn = torch.randn(5, 3), torch.diag(torch.tensor([-1.0, -1.0, 1.0]))
    >>> torch.allclose(model(x @ half_turn.mT), model(x), atol=1e-6)
    True
    """

    def __init__(
        self,
        generators: Tensor,
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        *,
        output: str = "invariant",
        affine: bool = False,
        exchangeable: bool = False,
        hidden: Sequence[int] = (16, 16, 16),
        scale: float = 1.0,
        products: bool = True,
        tolerance: float = 1e-5,
    ) -> None:
        super().__init__()
        if output not in OUTPUTS:
            raise ValueError(f"unknown output {output!r}; choose from {', '.join(OUTPUTS)}")
        given = GeneratorBasis.fixed(generators)()
        if not len(given):
            raise ValueError("there are no generators; an equivariant network needs at least 1")
        d = given.shape[-1] - affine
        same, moves = output == "same", output != "invariant"
        _check_shapes(in_shape, out_shape, d, moves=moves, alike=same and (affine or exchangeable))
        if exchangeable and (len(in_shape) != 2 or not hidden):
            raise ValueError(
                f"in_shape={tuple(in_shape)}, hidden={tuple(hidden)}: a set needs the shape "
                f"(n, {d}) and a hidden layer"
            )
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        self.affine, self.exchangeable, self.same, self.scale = affine, exchangeable, same, scale
        vector = _moving(given, scale) if affine else given
        # A generator says the same at any length, and so must its equations.
        vector = vector / vector.flatten(1).norm(dim=1).clamp_min(1e-30)[:, None, None]
        target = vector[:, -d:, -d:] if moves else torch.zeros_like(vector[:, :1, :1])
        products = products and vector.shape[-1] <= _LARGEST_PRODUCT
        copies = 1 if exchangeable else math.prod(in_shape[:-1])
        # Of a set: whether each point has an output of its own.
        each_point = exchangeable and moves and self.in_shape == self.out_shape
        n_out = 1 if each_point else math.prod(out_shape) // target.shape[-1]
        # Deep Sets: layers on each point, the mean over points, a layer on it.
        per_point = (len(hidden) if each_point else max(1, len(hidden) - 1)) if exchangeable else 0
        layers: list[nn.Module] = []
        source = vector
        for depth, width in enumerate(hidden, start=1):
            each = depth <= per_point
            n_in = 2 * copies if each else copies
            block = GatedBlock(source, vector, n_in, width, tolerance, products=products)
            layers.append(OverPoints(block) if each else block)
            if depth == per_point and not each_point:
                layers.append(MeanOverPoints())
            source, copies = lift(vector), width
        n_in = 2 * copies if each_point else copies
        last = EquivariantLinear(source, target, n_in, n_out, tolerance)
        layers.append(OverPoints(last) if each_point else last)
        self.blocks = nn.Sequential(*layers)
        if not moves:
            self._check_that_it_varies(vector)

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        moved = self.blocks(self._features(x / self.scale)).reshape(len(x), *self.out_shape)
        if not self.same:
            return moved
        return x + self.scale * moved if self.affine else self.scale * moved

    def _features(self, x: Float[Tensor, "batch *n d"]) -> Float[Tensor, "batch *m a"]:
        """Samples as vectors of V; for sets, with an axis of one channel."""
        if self.affine:
            points = x.flatten(1, -2) if x.ndim > 2 else x.unsqueeze(1)
            centred = points - points.mean(1, keepdim=True)
            x = torch.cat([points, torch.ones_like(points[..., :1]), centred], dim=-1)
        return x.unsqueeze(2) if self.exchangeable else x

    @torch.no_grad()
    def _check_that_it_varies(self, like: Tensor) -> None:
        rng = torch.Generator().manual_seed(0)
        samples = torch.randn(16, *self.in_shape, generator=rng).to(like) * self.scale
        if float(self(samples).std(0).max()) < _VARIES:
            raise ValueError(
                f"there is no invariant network: neither an invariant linear map nor a bilinear "
                f"form of these generators tells one sample of shape {self.in_shape} from another. "
                f"(Under a scaling no polynomial is invariant, only ratios are.) Use "
                f"output='same', more vectors a sample, or a plain network"
            )


def _moving(generators: Float[Tensor, "c e e"], scale: float) -> Float[Tensor, "c a a"]:
    """Homogeneous generators on (p, 1) and, beside it, on differences of points; p / scale."""
    rows = generators.shape[-1] - 1
    if bool(generators[:, rows:].any()):
        raise ValueError("affine generators must have a last row of zeros")
    scaled = generators.clone()
    scaled[:, :rows, rows:] /= scale
    return torch.stack([torch.block_diag(g, g[:rows, :rows]) for g in scaled])


def _check_shapes(
    in_shape: Sequence[int], out_shape: Sequence[int], d: int, *, moves: bool, alike: bool
) -> None:
    moving = {"in_shape": in_shape} | ({"out_shape": out_shape} if moves else {})
    for name, shape in moving.items():
        if not shape or shape[-1] != d:
            raise ValueError(
                f"{name}={tuple(shape)}: the generators move vectors of {d} numbers, which must "
                f"be the last axis"
            )
    if alike and tuple(in_shape) != tuple(out_shape):
        raise ValueError(
            f"out_shape={tuple(out_shape)}: points of affine generators and of sets move one by "
            f"one, so it must be in_shape={tuple(in_shape)}"
        )
