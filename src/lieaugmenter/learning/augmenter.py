"""LieAugmenter: a basis, a sampler and two actions, trained with any predictor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property, partial
from numbers import Integral
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lieaugmenter.actions import Action, InvariantAction, VectorAction
from lieaugmenter.actions.base import Batch, batch_size, map_tensors, tensors_of
from lieaugmenter.actions.words import check_moving_labels, make_action, make_output
from lieaugmenter.learning import vector_kernels, vector_step
from lieaugmenter.learning.arguments import whole_number
from lieaugmenter.learning.averaging import (
    averaged,
    call,
    check_average,
    in_chunks,
    shaped_like,
)
from lieaugmenter.learning.labels import check_all_count, check_labels
from lieaugmenter.learning.objective import Loss, Objective, Parts
from lieaugmenter.lie import kernels
from lieaugmenter.lie.basis import GeneratorBasis, block_mask
from lieaugmenter.lie.elements import Elements
from lieaugmenter.lie.exponential import LARGEST_SERIES
from lieaugmenter.lie.samplers import LearnableRange, Sampler, make_sampler
from lieaugmenter.nets.mode import evaluating
from lieaugmenter.runs import digest_of

# The terms of `vector_step`, in its order.
_VECTOR_TERMS = ("prediction", "equivariance", "similarity", "sparsity")
_NON_TRIVIALITY = ("similarity", "proximity")
# Beyond this coefficient views look no less like the originals: a rotation has come round.
_FAR = 5.0
# Beyond this range elements mean nothing, and the series of one generator would take for ever.
LARGEST_REACH = 500.0
# Of it, so that rounding does not lead beyond.
_WITHIN = 0.99
_MOST_VIEWS = 100_000
# The share of the usual range that a warm-up begins with.
_WARMUP_START = 0.1


def calculable_range(
    largest: float, generators: Float[Tensor, "c d d"], sampler: str = "uniform"
) -> float:
    """A range of coefficients, no larger than what elements of these generators can be made for.

    In columns of unlike units the entries of a generator that mixes them are large.

    >>> turn = torch.tensor([[[0.0, -1e-3], [1e3, 0.0]]])
    >>> calculable_range(2.0, turn), calculable_range(0.1, turn)
    (0.495, 0.1)
    """
    norm = float(generators.flatten(1).norm(dim=1).max()) if len(generators) else 0.0
    reach = norm * make_sampler(sampler, largest, len(generators)).reach
    return largest if reach <= LARGEST_REACH else _WITHIN * largest * LARGEST_REACH / reach


class LieAugmenter(nn.Module):
    """Learnable augmentations: generators that are trained together with a predictor.

    Parameters
    ----------
    action
        How elements move inputs: ``"vector"`` (batch, d) or (batch, …, d), ``"points"``
        (batch, n, d), ``"affine"`` (points that are also translated), ``"fourvector"``,
        ``"image"`` (batch, channels, height, width), or an `Action`.
    dim
        Number of coordinates of a vector or point.
    n_generators
        c.
    output
        How elements move labels: ``"invariant"``, ``"same"`` (like inputs), ``"vector"`` (turned
        and stretched with the space, but not translated: forces, a dipole), or an `Action`.
    n_views
        K, the number of sampled elements for each sample.
    range
        γ: coefficients are drawn from [-γ, γ]. The action's usual range unless given: 0.3 for
        four-momenta, whose boosts grow fast, 2 for all others.
    sampler
        ``"uniform"``, ``"integer-grid"``, ``"normal"``, ``"learnable"``, or a `Sampler`.
    warmup_steps
        Training steps over which the range grows to γ, from a tenth of it or of the action's
        usual range, whichever is smaller; 0 for none. A wide range needs a longer warm-up.
    objective
        Weights of the terms.
    mask, blocks
        Entries of the generators that may differ from zero: a (d, d) mask, or sizes of blocks
        along the diagonal.
    basis
        A `GeneratorBasis`, or a (c, d, d) tensor of known generators that stay fixed.
    components
        Discrete representatives (reflections, …) to mix in with equal probability, (m, d, d); the
        identity is always one of them.
    n_factors
        R: elements are products of R exponentials.
    init
        Initialisation of the basis, see `GeneratorBasis`.
    nimble
        Keep the generators as easy to turn as they are at the start, see `GeneratorBasis.shorten`:
        for networks and data that show the symmetry late. They come to rest only where the
        learning rate falls towards the end, as that of `fit` does. A `basis` says it itself.

    Examples
    --------
    >>> augmenter = LieAugmenter(action="vector", dim=2, output="invariant", n_views=4)
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> x = torch.randn(16, 2)
    >>> loss = augmenter.loss(model, x, x.norm(dim=1, keepdim=True))
    >>> loss.backward()
    >>> list(loss.parts)
    ['prediction', 'equivariance', 'proximity', 'sparsity']
    """

    # Whether originals and views go through the model in one batch.
    mixes_views = True
    # Whether the loss of a batch is the mean of the losses of its samples.
    separable = True
    # Where a batch is a part of a larger one: its first row, and the number of all.
    _part: tuple[int, int] | None = None
    components: Tensor | None
    term_weights: Tensor
    vector_weights: Tensor
    vector_terms: Tensor

    def __init__(
        self,
        action: str | Action = "vector",
        dim: int | None = None,
        n_generators: int = 1,
        output: str | Action = "same",
        n_views: int = 10,
        *,
        range: float | None = None,
        sampler: str | Sampler = "uniform",
        warmup_steps: int = 1000,
        objective: Objective | None = None,
        mask: Tensor | None = None,
        blocks: Sequence[int] | None = None,
        basis: GeneratorBasis | Tensor | None = None,
        components: Tensor | None = None,
        n_factors: int = 1,
        init: str | None = None,
        nimble: bool = False,
    ) -> None:
        super().__init__()
        n_views, n_factors = whole_number("n_views", n_views), whole_number("n_factors", n_factors)
        if not (1 <= n_views <= _MOST_VIEWS and n_factors >= 1):
            raise ValueError(
                f"n_views={n_views}, n_factors={n_factors}: both must be at least 1, and at most "
                f"{_MOST_VIEWS} views"
            )
        if not isinstance(n_generators, Integral):
            raise ValueError(f"n_generators={n_generators!r}: give a whole number of at least 1")
        self.action = make_action(action, dim)
        self.output = make_output(output, self.action)
        self.n_views = n_views
        self.n_factors = n_factors
        self.objective = Objective() if objective is None else objective
        if basis is not None:
            _refuse_beside_basis(mask=mask, blocks=blocks, init=init, nimble=nimble or None)
        if basis is None:
            basis = GeneratorBasis(
                int(n_generators),
                self.action.dim,
                space_dim=self.action.space_dim,
                mask=joint_mask(self.action, mask, blocks),
                init=init,
                nimble=nimble,
            )
        elif isinstance(basis, Tensor):
            basis = GeneratorBasis.fixed(basis if basis.is_floating_point() else basis.float())
        # One generator is what was not asked for otherwise.
        if n_generators not in (1, basis.n_generators):
            raise ValueError(
                f"n_generators={n_generators}, but the basis has {basis.n_generators}: leave it out"
            )
        if basis.dim != self.action.dim:
            raise ValueError(
                f"the basis has matrices of size {basis.dim}, but {self.action} needs "
                f"{self.action.dim}"
            )
        if bool((basis().detach().cpu() * (1 - self.action.mask)).any()):
            raise ValueError(
                f"the basis has entries that {self.action} has no place for: in homogeneous "
                f"coordinates the last row of a generator is zero"
            )
        self.basis = basis
        if isinstance(sampler, Sampler):
            if range is not None:
                raise ValueError(
                    f"range={range:g} beside a sampler, which has one: {type(sampler).__name__}"
                    f"({range:g})"
                )
        else:
            usual = self.action.usual_range
            largest = usual if range is None else range
            sampler = make_sampler(
                sampler,
                largest,
                basis.n_generators,
                warmup_steps=warmup_steps,
                warmup_start=_WARMUP_START * usual / max(usual, largest),
            )
        self.sampler = sampler
        largest = self.sampler.reach * max(basis.norms, default=0.0)
        if largest > LARGEST_REACH:
            raise ValueError(
                f"range={self.sampler.range:g}: a coefficient times its generator reaches a norm "
                f"of {largest:.3g}, at most {LARGEST_REACH:g} is supported (a boost overflows "
                f"float32 at 88, a rotation has gone round many times). Use a smaller range"
            )
        self.register_buffer("components", _with_identity(components, self.action))
        self._terms = self.objective.active(basis.n_generators)
        if not self._terms:
            raise ValueError("every weight of the objective is zero: there is nothing to learn")
        weights = torch.tensor([float(getattr(self.objective, name)) for name in self._terms])
        self.register_buffer("term_weights", weights, persistent=False)
        of_vectors = [float(getattr(self.objective, name)) for name in _VECTOR_TERMS]
        self.register_buffer("vector_weights", torch.tensor(of_vectors), persistent=False)
        chosen = [_VECTOR_TERMS.index(name) for name in self._terms if name in _VECTOR_TERMS]
        self.register_buffer(
            "vector_terms", torch.tensor(chosen, dtype=torch.int64), persistent=False
        )
        self._weighed_for = 1.0
        self._weigh()
        self.register_load_state_dict_post_hook(_recount)

    @property
    def generators(self) -> Float[Tensor, "c d d"]:
        """The generators, (c, d, d), differentiable."""
        return self.basis()

    @property
    def optimizer_options(self) -> dict[str, Any]:
        """What sets the optimiser of the generators apart from the model's: nothing."""
        return {}

    @property
    def terms(self) -> list[str]:
        """Names of the active terms of the objective."""
        return list(self._terms)

    @property
    def construction(self) -> dict[str, Any]:
        """What it was built with, which training leaves as it is: a run goes on only with the same.

        Of tensors a digest. How learned generators began is no part of it.
        """
        basis, sampler = self.basis, self.sampler
        return {
            "augmenter": type(self).__name__,
            "action": type(self.action).__name__,
            "action.built": str(self.action),
            "output": type(self.output).__name__,
            "output.built": str(self.output),
            "n_views": self.n_views,
            "n_factors": self.n_factors,
            "components": None if self.components is None else _digest(self.components),
            "basis.learned": basis.learnable,
            # The mask of a fixed basis follows from its generators.
            "basis.mask": _digest(basis.first_mask) if basis.learnable else None,
            "basis.generators": None if basis.learnable else _digest(basis.raw),
            "sampler": str(sampler),
            "sampler.range": sampler.range,
            "sampler.reach": float(sampler.reach),
            "sampler.warmup_start": float(sampler.warmup_start),
            **{f"objective.{name}": value for name, value in asdict(self.objective).items()},
        }

    def sample(
        self, batch: int, views: int | None = None, generator: torch.Generator | None = None
    ) -> Elements:
        """Draw elements, (batch, views), with gradients to the basis and a learned range."""
        views = self.n_views if views is None else views
        basis = self.basis()
        shape = (views, self.n_factors, basis.shape[0])
        coefficients = self._drawn(batch, lambda n: self.sampler((n, *shape), generator))
        index = None
        if self.components is not None:
            most, device = len(self.components), basis.device
            index = self._drawn(
                batch,
                lambda n: torch.randint(most, (n, views), generator=generator, device=device),
            )
        return Elements(
            coefficients,
            basis,
            bound=self._bound,
            components=self.components,
            component_index=index,
            rows=self.action.rows,
        )

    @contextmanager
    def part_of(self, start: int, total: int) -> Iterator[None]:
        """Draw for batches that are rows of a larger one as if for all of it.

        Parameters
        ----------
        start
            The first row.
        total
            Samples of the larger batch.
        """
        self._part = (start, total)
        try:
            yield
        finally:
            self._part = None

    def _drawn(self, batch: int, draw: Callable[[int], Tensor]) -> Tensor:
        """Random numbers for the rows of a batch; of a part, its rows of what the whole gets."""
        if self._part is None:
            return draw(batch)
        start, total = self._part
        return draw(total)[start : start + batch]

    def views(self, x: Batch, generator: torch.Generator | None = None) -> Batch:
        """x_ij = ρ_X(g_ij) x_i, Eq. (2): K transformed copies of each sample, (batch, K, …)."""
        self.action.check(x)
        return self.action.act(self.sample(batch_size(x), generator=generator), x)

    def loss(
        self,
        model: Callable[[Batch], Tensor],
        x: Batch,
        y: Tensor,
        generator: torch.Generator | None = None,
    ) -> Loss:
        """The objective, Eq. (9), on one batch: use it in place of ``criterion(model(x), y)``.

        Parameters
        ----------
        model
            Any module or function that maps a batch of inputs to one tensor. It sees the original
            and the transformed samples in one call.
        x
            Inputs: a tensor, or a dict or tuple of tensors, batch axis first.
        y
            Labels. Floating-point labels are regressed, integer labels are classes.
        generator
            Source of the coefficients; torch's global one unless given.

        Returns
        -------
        Loss
            A scalar tensor; `.parts` holds the unweighted terms by name.
        """
        joined, finish = self.prepare(x, y, generator)
        return finish(call(model, joined))

    def loss_in_chunks(
        self,
        model: Callable[[Batch], Tensor],
        x: Batch,
        y: Tensor,
        size: int,
        generator: torch.Generator | None = None,
    ) -> Iterator[Loss]:
        """Shares of `loss` that add up to it: of `size` samples each, with their views.

        Every term is a mean over samples or does not depend on them, so that gradients add up as
        well. Take each share backward before asking for the next, and only one of them is in
        memory. The elements are those that `loss` would draw.

        Parameters
        ----------
        model, x, y, generator
            As for `loss`.
        size
            Samples in a chunk; the last may have fewer.

        Examples
        --------
        >>> augmenter = LieAugmenter("vector", 2, output="invariant")
        >>> model, x = nn.Linear(2, 1), torch.randn(16, 2)
        >>> for share in augmenter.loss_in_chunks(model, x, x.norm(dim=1, keepdim=True), size=5):
        ...     share.backward()
        """
        if not self.separable:
            raise ValueError(f"the loss of {type(self).__name__} cannot be taken in chunks")
        y = self.begin(x, y)
        check_all_count(y)
        n, rng = batch_size(x), _RandomSource(generator, self.term_weights.device)
        start = rng.state()
        for first in range(0, n, size):
            here = rng.state()
            # The whole batch's elements are drawn anew for every chunk: backward passes have freed
            # what ties the earlier ones to the basis.
            rng.set_state(start)
            elements = self.sample(n, generator=generator)
            if first:
                rng.set_state(here)
            rows = slice(first, min(first + size, n))
            part = map_tensors(lambda t, rows=rows: t[rows], x)
            joined, terms_of = self._around(elements.of_samples(rows), part, y[rows])
            yield self._weighed(terms_of(call(model, joined)) * ((rows.stop - first) / n))

    def prepare(
        self, x: Batch, y: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Batch, Callable[[Tensor], Loss]]:
        """The two halves of `loss`, around the call of the model.

        Parameters
        ----------
        x, y, generator
            As for `loss`.

        Returns
        -------
        tuple
            Originals and views in one batch, (batch · (K + 1), …), for the model to predict; and
            the function that turns these predictions into the loss.
        """
        y = self.begin(x, y)
        if self._gradients_by_hand and _alike(x, y, self.basis.raw):
            return self._prepare_by_hand(x, y, generator)
        joined, terms_of = self._prepare(x, y, generator)

        def finish(predictions: Tensor) -> Loss:
            return self._weighed(terms_of(predictions))

        return joined, finish

    def _weighed(self, terms: Float[Tensor, " terms"]) -> Loss:
        """The weighted sum of the terms, with a copy of the weights: during the warm-up the next
        loss writes to them, and this one may not have gone backward yet.
        """
        weights = self.term_weights.to(terms.dtype, copy=True)
        return as_loss(torch.dot(terms, weights), self._terms, terms)

    def begin(self, x: Batch, y: Tensor) -> Tensor:
        """Check a batch and count the step; the labels in the form that the terms need."""
        self.action.check(x, "x")
        n = batch_size(x)
        if not n:
            raise ValueError("the batch is empty: a loss is a mean over samples")
        y = self._check_labels(y, n)
        if self.training and torch.is_grad_enabled():
            self.basis.shorten()
            if not _capturing():
                self.advance()
        return y

    def advance(self) -> None:
        """Count one training step of the warm-up."""
        if torch.compiler.is_compiling():
            # Outside the graph, which would be compiled anew for every count. Not by a decorator:
            # it loads the compiler, which takes as long as torch itself.
            torch.compiler.disable(LieAugmenter._count_step)(self)
        else:
            self._count_step()

    def _count_step(self) -> None:
        self.sampler.advance()
        if self.sampler.share != self._weighed_for:
            self._weigh()

    def recount(self) -> None:
        """Take the state of the warm-up from its buffers, after they were written from outside."""
        self.sampler.recount()
        self._weigh()

    @torch.no_grad()
    def _weigh(self) -> None:
        """Weigh the non-triviality terms by the inverse square of the share of the range in use.

        What they see of a motion shrinks with the square of its size, as long as that is small. At
        a small range they would be outvoted by doing nothing; so weighed they say at every range
        what they say at the full one.
        """
        self._weighed_for = share = self.sampler.share
        share = min(1.0, share * max(1.0, self.sampler.range / _FAR))
        for names, weights in (
            (self._terms, self.term_weights),
            (_VECTOR_TERMS, self.vector_weights),
        ):
            for i, name in enumerate(names):
                if name in _NON_TRIVIALITY:
                    weights[i].fill_(getattr(self.objective, name) / share**2)

    def _prepare(
        self, x: Batch, y: Tensor, generator: torch.Generator | None
    ) -> tuple[Batch, Callable[[Tensor], Float[Tensor, " terms"]]]:
        """What the model is to predict, and the active terms from it, for every kind of action."""
        return self._around(self.sample(batch_size(x), generator=generator), x, y)

    def _around(
        self, elements: Elements, x: Batch, y: Tensor
    ) -> tuple[Batch, Callable[[Tensor], Float[Tensor, " terms"]]]:
        """`_prepare` for elements that are drawn, (batch, views)."""
        n = batch_size(x)
        x_views, y_views = self._move(elements, x, y)

        def terms_of(predictions: Tensor) -> Float[Tensor, " terms"]:
            direct, moved = predictions.split([n, n * self.n_views])
            moved = moved.unflatten(0, (n, self.n_views))
            if y.is_floating_point():
                direct, moved = shaped_like(direct, y), shaped_like(moved, y_views)
            else:
                _check_logits(direct)
                check_labels(direct, y)
            flat_views = map_tensors(lambda t: t.flatten(0, 1), x_views)
            return self.objective.terms(
                prediction=direct,
                y=y,
                view_prediction=moved,
                view_target=y_views,
                x=self.action.moving(x),
                views=self.action.moving(flat_views).unflatten(0, (n, self.n_views)),
                basis=elements.basis,
            )

        return map_tensors_pairwise(x, x_views), terms_of

    @cached_property
    def _moves_vectors(self) -> bool:
        """Whether the parts are those that `vector_step` knows: vectors, one learned generator."""
        labels_move = type(self.output).act is VectorAction.act
        return (
            type(self.action).act is VectorAction.act
            and (labels_move or type(self.output) is InvariantAction)
            and type(self.basis) is GeneratorBasis
            and self.basis.learnable
            and self.basis.n_generators == 1
            and self.n_factors == 1
            and self.components is None
            and not isinstance(self.sampler, LearnableRange)
            and self.objective.by_hand
        )

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        # Asked in every step, so it is kept; but not longer than the parts that it speaks of.
        self.__dict__.pop("_moves_vectors", None)

    @property
    def _gradients_by_hand(self) -> bool:
        """Whether `vector_step` can take the step: it is one series, of parts that it knows."""
        return self._moves_vectors and self._bound <= LARGEST_SERIES

    def _prepare_by_hand(
        self, x: Tensor, y: Tensor, generator: torch.Generator | None
    ) -> tuple[Batch, Callable[[Tensor], Loss]]:
        """The loss by `vector_step` or its kernels: the numbers of `_prepare`, faster."""
        if self._by_kernels(x, y):
            joined, finish_all = prepare_by_kernels([self], x[None], y[None], [generator])

            def finish_one(predictions: Tensor) -> Loss:
                totals, terms = finish_all(predictions[None])
                return as_loss(totals.sum(), self._terms, terms[0])

            return joined[0], finish_one
        n, views = len(x), self.n_views
        weights = self._drawn(n, partial(_draw_weights, self, views, generator)).view(n, views)
        vectors, n_inputs = self._vectors(x, y)
        basis = self.basis
        joined, y_views, regularisers = vector_step.augment(
            basis.raw, basis.mask, basis.norm, weights, vectors, n_inputs, self._bound
        )
        flat = y.reshape(n, -1)
        if not self._labels_move:
            y_views = flat.unsqueeze(1).expand(-1, views, -1)

        def finish(predictions: Tensor) -> Loss:
            if predictions.shape[1:] != y.shape[1:]:
                shaped_like(predictions[:n], y)  # raises if it does not fit
            # Reshaped only where it must be: a view is a node of the graph, and takes its time.
            if predictions.ndim != 2 or predictions.shape[1] != flat.shape[1]:
                predictions = predictions.reshape(-1, flat.shape[1])
            # A copy, as in `_weighed`.
            weights = self.vector_weights.to(x.dtype, copy=True)
            total, terms = vector_step.total(predictions, flat, y_views, regularisers, weights)
            if len(self._terms) < len(_VECTOR_TERMS):
                terms = terms.index_select(0, self.vector_terms)
            return as_loss(total, self._terms, terms)

        return joined if x.ndim == 2 else joined.view(-1, *x.shape[1:]), finish

    @property
    def _labels_move(self) -> bool:
        return type(self.output) is not InvariantAction

    def _vectors(self, x: Tensor, y: Tensor) -> tuple[Float[Tensor, "batch n d"], int]:
        """All vectors of a sample that one element moves, and how many are the input's."""
        d = self.action.dim
        vectors = x.reshape(len(x), -1, d)
        if not self._labels_move:
            return vectors, vectors.shape[1]
        return torch.cat([vectors, y.reshape(len(y), -1, d)], dim=1), vectors.shape[1]

    def stacks(self, x: Batch, y: Tensor) -> bool:
        """Whether members like this one can be prepared together by `prepare_by_kernels`.

        Parameters
        ----------
        x, y
            Batches of all members, (members, batch, …).
        """
        return (
            self._gradients_by_hand
            and _alike(x, y, self.basis.raw)
            and self._by_kernels(x[0], y[0])
        )

    def _by_kernels(self, x: Tensor, y: Tensor) -> bool:
        """Whether the step is one for `vector_kernels`."""
        if not x.is_cuda:
            return False
        numbers = x[0].numel() + (y[0].numel() if self._labels_move else 0)
        return (
            x.dtype == torch.float32
            and kernels.available()
            and vector_kernels.fits(self.action.dim, numbers // self.action.dim, self.n_views)
        )

    @property
    def _bound(self) -> float:
        """The largest norm that a sum of w_i L_i can have."""
        return self.sampler.reach * sum(self.basis.norms)

    def _move(self, elements: Elements, x: Batch, y: Tensor) -> tuple[Batch, Tensor]:
        """Act on inputs and labels; vectors of both kinds in one go, which halves the cost."""
        both_vectors = type(self.action).act is type(self.output).act is VectorAction.act
        if both_vectors and x.dtype == y.dtype:
            d = self.action.dim
            vectors = torch.cat([x.reshape(len(x), -1, d), y.reshape(len(y), -1, d)], dim=1)
            moved = self.action.act(elements, vectors)
            of_x, of_y = moved.split([x[0].numel() // d, y[0].numel() // d], dim=2)
            shape = (len(x), self.n_views)
            return of_x.reshape(*shape, *x.shape[1:]), of_y.reshape(*shape, *y.shape[1:])
        return self.action.act(elements, x), self.output.act(elements, y)

    def _check_labels(self, y: Tensor, n: int) -> Tensor:
        if not isinstance(y, Tensor):
            raise TypeError(f"y is a {type(y).__name__}; pass a tensor, torch.as_tensor(y)")
        if len(y) != n:
            raise ValueError(f"x has {n} rows, y has {len(y)}")
        if y.is_floating_point():
            check_moving_labels(self.output, y)
            return y
        if y.is_complex():
            raise ValueError("y is complex; pass real and imaginary parts as two columns")
        if not isinstance(self.output, InvariantAction):
            raise ValueError(
                f"y has dtype {y.dtype}: integer labels are classes, which an element cannot "
                f"move. Use output='invariant', or pass y.float() to regress numbers"
            )
        if y.ndim != 1:
            raise ValueError(
                f"y has dtype {y.dtype} and shape {tuple(y.shape)}: class labels must be (N,). "
                f"To regress whole numbers pass y.float()"
            )
        return y.long()

    @torch.no_grad()
    def predict(
        self, model: Callable[[Batch], Tensor], x: Batch, **options: Any
    ) -> Float[Tensor, "batch *out"]:
        """Predict by averaging over K sampled elements, Eq. (39), or directly; without gradients.

        Parameters
        ----------
        model, x, options
            As for `average`.
        """
        return self.average(model, x, **options)

    def average(
        self,
        model: Callable[[Batch], Tensor],
        x: Batch,
        *,
        views: int | None = None,
        average: str = "values",
        seed: int = 0,
        batch_size: int = 2048,
    ) -> Float[Tensor, "batch *out"]:
        """What `predict` predicts, with gradients to the inputs, the model and the generators.

        Pass the module itself where you can: behind a lambda its dropout stays as it is.
        The output of each view is moved back by the inverse element before averaging. All samples
        share the K elements, so that the prediction for one does not depend on its neighbours; the
        same seed gives the same prediction. The model is switched to evaluation mode for the call.

        Parameters
        ----------
        model
            The predictor.
        x
            Inputs.
        views
            K; `n_views` unless given. 0 gives the direct prediction, model(x).
        average
            ``"values"`` or ``"logits"``: the model's outputs as they are. ``"probabilities"``:
            their softmax.
        seed
            Of the sampled elements.
        batch_size
            Samples, transformed ones included, that the model sees at once.

        Returns
        -------
        Tensor
            (batch, …), like model(x).
        """
        self.action.check(x)
        check_average(average)
        elements = self.elements_of_inference(views, seed)
        taken = 1 if elements is None else elements.views + 1

        def one_chunk(chunk: Batch) -> Tensor:
            return averaged(
                model, chunk, elements, action=self.action, output=self.output, average=average
            )

        with evaluating(model):
            return in_chunks(one_chunk, x, max(1, batch_size // taken))

    def elements_of_inference(self, views: int | None = None, seed: int = 0) -> Elements | None:
        """The K elements that a prediction is averaged over, of one sample, which all share.

        Parameters
        ----------
        views, seed
            As of `average`; None is returned for the direct prediction.
        """
        views = self.n_views if views is None else views
        if not views:
            return None
        rng = torch.Generator(device=self.term_weights.device).manual_seed(seed)
        return self.sample(1, views, rng)

    def freeze(self) -> LieAugmenter:
        """Fix the generators as they are, in place: from here on a plain augmentation."""
        self.basis = self.basis.freeze()
        return self

    def bind(self, model: nn.Module) -> JointModule:
        """One module of the model and this augmenter, whose forward is the loss."""
        return JointModule(model, self)

    def summary(self) -> str:
        """A few lines on what is learned at present."""
        ranges = self.sampler.ranges().detach().expand(self.basis.n_generators).tolist()
        lines = [f"{self.basis.n_generators} generator(s) of {self.action}, K = {self.n_views}"]
        for index, (generator, reach) in enumerate(
            zip(self.generators.detach().cpu(), ranges, strict=True)
        ):
            rows = [" ".join(f"{value:+6.2f}" for value in row) for row in generator.tolist()]
            lines.append(f"L{index + 1}, coefficients up to ±{reach:.2f}")
            lines += [f"  {row}" for row in rows]
        return "\n".join(lines)

    def extra_repr(self) -> str:
        return f"action={self.action}, output={self.output}, n_views={self.n_views}"


class JointModule(nn.Module):
    """A predictor and its augmenter as one module: ``joint(x, y)`` is the loss.

    One module owns all parameters, so that wrapping it (for several devices, say) reaches both.
    """

    def __init__(self, model: nn.Module, augmenter: LieAugmenter) -> None:
        super().__init__()
        self.model = model
        self.augmenter = augmenter

    def forward(self, x: Batch, y: Tensor) -> Loss:
        return self.augmenter.loss(self.model, x, y)


def map_tensors_pairwise(x: Batch, views: Batch) -> Batch:
    """Originals and views in one batch: (batch, …) and (batch, K, …) to (batch · (K + 1), …)."""
    flat = iter(tensors_of(views))
    return map_tensors(lambda t: torch.cat([t.to((v := next(flat)).dtype), v.flatten(0, 1)]), x)


def prepare_by_kernels(
    members: Sequence[LieAugmenter],
    x: Float[Tensor, "members batch *n"],
    y: Float[Tensor, "members batch *out"],
    generators: Sequence[torch.Generator | None],
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
    """`LieAugmenter.prepare` for members made alike, all of them in the same few kernels.

    Parameters
    ----------
    members
        Augmenters of vectors under one generator.
    x, y
        Checked batches, one for each member.
    generators
        Sources of the members' coefficients.

    Returns
    -------
    tuple
        What the models are to predict, (members, batch · (K + 1), …); and the function from their
        predictions to the losses, (members,), and the terms, (members, terms).
    """
    first, (s, n) = members[0], y.shape[:2]
    views, basis = first.n_views, first.basis
    weights = [
        member._drawn(n, partial(_draw_weights, member, views, generator)).view(n, views)
        for member, generator in zip(members, generators, strict=True)
    ]
    vectors, n_inputs = first._vectors(x.flatten(0, 1), y.flatten(0, 1))
    joined, y_views, regularisers = vector_kernels.augment(
        torch.cat([member.basis.raw for member in members]),
        basis.mask,
        basis.norm,
        torch.stack(weights),
        vectors.unflatten(0, (s, n)),
        n_inputs,
        first._bound,
    )
    flat = y.reshape(s, n, -1)

    def finish(predictions: Tensor) -> tuple[Tensor, Tensor]:
        shaped_like(predictions[0, :n], y[0])  # raises if it does not fit
        totals, terms = vector_kernels.total(
            predictions.reshape(s, -1, flat.shape[-1]),
            flat,
            y_views if first._labels_move else flat.unsqueeze(2),
            regularisers,
            first.vector_weights.clone(),  # as in `_weighed`
        )
        return totals, terms.index_select(1, first.vector_terms)

    return joined.view(s, -1, *x.shape[2:]), finish


def _draw_weights(
    member: LieAugmenter, views: int, generator: torch.Generator | None, n: int
) -> Tensor:
    return member.sampler((n, views, 1, 1), generator)


def _recount(augmenter: LieAugmenter, _: object) -> None:
    augmenter.recount()


def joint_mask(action: Action, mask: Tensor | None, blocks: Sequence[int] | None) -> Tensor | None:
    """Where generators may differ from zero: the mask or blocks asked for, within the action's."""
    if mask is not None and blocks is not None:
        raise ValueError("give mask= or blocks=, not both")
    if blocks is not None:
        if sum(blocks) != action.dim:
            raise ValueError(f"blocks sum to {sum(blocks)} but dim is {action.dim}")
        mask = block_mask(blocks)
    if mask is None:
        return action.mask
    mask = torch.as_tensor(mask)
    if mask.shape != action.mask.shape:
        return mask  # GeneratorBasis says what is wrong with it
    return mask * action.mask


def _refuse_beside_basis(**settings: object) -> None:
    """Raise ValueError for settings that speak of a basis to be made, where one is given."""
    given = [f"{name}=" for name, value in settings.items() if value is not None]
    if given:
        raise ValueError(
            f"{', '.join(given)} beside basis=: a basis says it itself, as "
            f"GeneratorBasis(…, {given[0]}…)"
        )


def _with_identity(components: Tensor | None, action: Action) -> Tensor | None:
    if components is None:
        return None
    dim, rows = action.dim, action.rows
    if components.ndim != 3 or components.shape[1:] != (dim, dim):
        raise ValueError(
            f"components have shape {tuple(components.shape)}; expected (m, {dim}, {dim})"
        )
    # Asked so that what is not a number is refused as well.
    if not bool((torch.linalg.det(components.double()).abs() >= 1e-6).all()):
        raise ValueError("components must be invertible matrices of finite numbers")
    identity = torch.eye(dim, dtype=components.dtype, device=components.device)
    if bool(((components - identity)[:, rows:].abs() > 1e-6).any()):
        raise ValueError(
            f"components of {action} must end in a row of zeros and a one: they are matrices in "
            f"homogeneous coordinates, not projective maps"
        )
    others = [matrix for matrix in components if not torch.equal(matrix, identity)]
    return torch.stack([identity, *others]).float()


def _check_logits(prediction: Tensor) -> None:
    if prediction.ndim != 2 or prediction.shape[1] < 2:
        raise ValueError(
            f"y holds class labels, so the model must return logits (batch, classes), one for each "
            f"class; it returned shape {tuple(prediction.shape)}"
        )


def as_loss(total: Tensor, names: list[str], terms: Tensor) -> Loss:
    """A scalar loss that carries its unweighted terms."""
    loss = cast(Loss, total)
    loss.parts = Parts(names, terms.detach())
    return loss


def _digest(tensor: Tensor) -> str:
    return digest_of({"": tensor})[:12]


def _alike(x: Batch, y: Tensor, raw: Tensor) -> bool:
    """Whether inputs, targets and generators have one precision, and only the last a gradient.

    Not in half precision, in which `vector_step` would take its series.
    """
    alike = x.dtype == y.dtype == raw.dtype and raw.dtype in (torch.float32, torch.float64)
    return alike and not (x.requires_grad or y.requires_grad)


class _RandomSource:
    """Where coefficients come from: a generator, or the device's own."""

    def __init__(self, generator: torch.Generator | None, device: torch.device) -> None:
        self.generator, self.device = generator, device

    def state(self) -> Tensor:
        if self.generator is not None:
            return self.generator.get_state()
        if self.device.type == "cuda":
            return torch.cuda.get_rng_state(self.device)
        return torch.get_rng_state()

    def set_state(self, state: Tensor) -> None:
        if self.generator is not None:
            self.generator.set_state(state)
        elif self.device.type == "cuda":
            torch.cuda.set_rng_state(state, self.device)
        else:
            torch.set_rng_state(state)


def _capturing() -> bool:
    """Whether this is being recorded into a CUDA graph, whose replays cannot count steps."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
