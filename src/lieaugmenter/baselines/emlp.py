"""The equivariant multilayer perceptron of a given Lie algebra (EMLP, Finzi et al. 2021).

V is the space that the generators act on, U = V ⊕ R the same with a scalar that nothing moves.
Hidden layers hold copies of U, vectors each with a scalar of its own. Every linear map is taken
from the null space of the equations that make it equivariant, so a network is equivariant whatever
its weights.
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

OUTPUTS = ("invariant", "same")
# Finzi et al.: products of features are small beside the features.
_PRODUCTS = 0.1


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
    """

    def __init__(
        self, source: Tensor, vector: Tensor, n_in: int, n_out: int, tolerance: float
    ) -> None:
        super().__init__()
        self.linear = EquivariantLinear(source, lift(vector), n_in, n_out, tolerance)
        both = torch.stack([torch.block_diag(g, -g.mT) for g in vector])
        self.partners = EquivariantLinear(vector, both, n_out, n_out, tolerance)

    def forward(self, x: Float[Tensor, "batch *n"]) -> Float[Tensor, "batch m u"]:
        features = self.linear(x)
        vectors, scalars = features[..., :-1], features[..., -1:]
        mixed, covectors = self.partners(vectors).chunk(2, dim=-1)
        gates = scalars + _PRODUCTS * (vectors * covectors).sum(-1, keepdim=True)
        vectors = vectors + _PRODUCTS * scalars * mixed
        # Twice the sigmoid: a gate of zero leaves its vector as it is, at any depth.
        return torch.cat([2 * gates.sigmoid() * vectors, functional.silu(gates)], dim=-1)


class EMLP(nn.Module):
    """A multilayer perceptron that is equivariant under given generators, to rounding.

    The dtype and the device of the generators are those of the network; convert them first, not
    the network, whose fixed matrices are rounded when it is built.

    It sees what invariant vectors, linear maps and bilinear forms on V can tell. Where V has no
    bilinear form, as under scalings, it is a linear map.

    Parameters
    ----------
    generators
        (c, d, d): V.
    in_shape, out_shape
        Shapes of one sample and of one output, without the batch axis: (d,) or (n, d), vectors
        that all move alike; (k,) for k invariant outputs.
    output
        ``"same"``: outputs move as inputs do; ``"invariant"``: they do not move.
    hidden
        Numbers of copies of U in the hidden layers.
    tolerance
        See `equivariant_maps`.

    Examples
    --------
    >>> from lieaugmenter.lie.catalogue import so
    >>> model, x = EMLP(so(2), (3, 2), (2,)), torch.randn(5, 3, 2)
    >>> quarter_turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> torch.allclose(model(x @ quarter_turn.mT), model(x) @ quarter_turn.mT, atol=1e-5)
    True
    """

    def __init__(
        self,
        generators: Tensor,
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        *,
        output: str = "same",
        hidden: Sequence[int] = (5, 5, 5),
        tolerance: float = 1e-5,
    ) -> None:
        super().__init__()
        if output not in OUTPUTS:
            raise ValueError(f"unknown output {output!r}; choose from {', '.join(OUTPUTS)}")
        vector = GeneratorBasis.fixed(generators)()
        # A generator says the same at any length, and so must its equations.
        vector = vector / vector.flatten(1).norm(dim=1).clamp_min(1e-30)[:, None, None]
        moving = {"in_shape": in_shape} | ({"out_shape": out_shape} if output == "same" else {})
        for name, shape in moving.items():
            if not shape or shape[-1] != vector.shape[-1]:
                raise ValueError(
                    f"{name}={tuple(shape)}: the generators move vectors of {vector.shape[-1]} "
                    f"numbers, which must be the last axis"
                )
        self.out_shape = tuple(out_shape)
        source, copies = vector, math.prod(in_shape[:-1])
        blocks: list[nn.Module] = []
        for width in hidden:
            blocks.append(GatedBlock(source, vector, copies, width, tolerance))
            source, copies = lift(vector), width
        target = vector if output == "same" else torch.zeros_like(vector[:, :1, :1])
        n_out = math.prod(out_shape) // target.shape[-1]
        blocks.append(EquivariantLinear(source, target, copies, n_out, tolerance))
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        return self.blocks(x).reshape(len(x), *self.out_shape)
