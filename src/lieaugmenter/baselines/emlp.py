"""The equivariant multilayer perceptron of a given Lie algebra (EMLP, Finzi et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lieaugmenter.nets.equivariant import EquivariantNetwork


class EMLP(EquivariantNetwork):
    """A multilayer perceptron that is equivariant under given generators, to rounding.

    The published layers: those of `EquivariantNetwork` without products of vectors to vectors.

    Parameters
    ----------
    generators
        (c, d, d).
    in_shape, out_shape
        Shapes of one sample and of one output, without the batch axis: (d,) or (n, d), vectors
        that all move alike; (k,) for k invariant outputs.
    output
        ``"same"``: outputs move as inputs do; ``"invariant"``: they do not move.
    hidden
        Numbers of copies of V ⊕ R in the hidden layers.
    tolerance
        See `nets.equivariant.equivariant_maps`.

    Examples
    --------
    >>> import torch
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
        super().__init__(
            generators,
            in_shape,
            out_shape,
            output=output,
            hidden=hidden,
            products=False,
            tolerance=tolerance,
        )
