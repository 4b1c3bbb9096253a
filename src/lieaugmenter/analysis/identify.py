"""Which Lie algebra learned generators span: a name with its evidence, and the exact algebra.

A basis means nothing by itself: any other of the same span is as good, and the coordinates of the
data are the user's. So an algebra is named in three steps, none of which looks at single
generators. Invariants of the span shortlist the candidates: direct sums of named algebras on
complementary subspaces. Each is then moved onto the learned span by a change of coordinates, as
plain as it can be (axes put in another order, an orthonormal change, any linear one). It gives its
name only if it lies there within the noise, and what it was moved to is the exact algebra.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.analysis.conjugation import (
    SMALL,
    USUAL_NOISE,
    along_axes,
    centred,
    descend,
    infinitesimal_changes,
    likely_changes,
    off,
    orthonormal_rows,
    shift,
    skew_free,
)
from lieaugmenter.analysis.invariants import Invariants, measure
from lieaugmenter.lie.brackets import closure_residual, conjugate, fingerprint, orthonormal
from lieaugmenter.lie.catalogue import NamedAlgebra, direct_sums

# Larger matrices would take minutes: the changes of coordinates have as many entries.
LARGEST_NAMED = 16
# The closure residual may show more than the usual noise, up to this.
_LARGEST_NOISE = 0.05
# Nearly dependent generators tell their span less well than each of them is known, by this factor
# at most; beyond it there is no telling.
_MOST_AMPLIFIED = 3.0
# A candidate may miss the span by this many times the noise, brackets leave it by that many.
_ACCEPTED = 2.0
_CLOSED = 3.0
# A plainer change of coordinates is kept while it misses by so many times the noise at most, or
# by so many times what the next plainest misses by.
_WITHIN = 1.2
_PLAINER = 1.5
# Fits that are tried: the candidates nearest by fingerprint (root mean square), those without
# skew a little later, and the last ones also in skewed coordinates.
_SHORTLISTED = 6
# Entries of all brackets of the candidates that are looked at together: 4 MB.
_BRACKETS = 2**19
_FARTHEST = 0.5
_SKEW_HANDICAP = 0.05
_REFINED = 3
_LARGEST_RATE = 4
# Kinds of a single generator that every spectrum belongs to: in skewed coordinates, which take a
# generator to any other of its spectrum, these names would say nothing.
_ANY_SPECTRUM = ("anisotropic scaling", "spiral", "torus line")


# -- one generator: its spectrum -------------------------------------------------------------------


def _one_parameter(span: Float[Tensor, "1 d d"], rows: int, noise: float) -> list[NamedAlgebra]:
    """The normal form of a single generator whose rates no table can list.

    Equal rates, zero rates and ratios of small numbers are recognised within the noise.
    """
    linear = span[0, :rows, :rows]
    size = float(linear.norm())
    if size < SMALL * noise:
        return []
    small = _ACCEPTED * noise * size
    values = torch.linalg.eigvals(linear)
    planes = [v for v in values.tolist() if v.imag > small]
    lines = [v.real for v in values.tolist() if abs(v.imag) <= small]
    turns = _merged([v.imag for v in planes], small)
    growths = _merged([v.real for v in planes] + lines, small)
    if not any(turns + growths):  # nilpotent: no spectrum to read
        return []
    parts = [torch.tensor([[a, -b], [b, a]]) for a, b in zip(growths, turns, strict=False)]
    parts += [torch.tensor([[a]]) for a in growths[len(planes) :]]
    form = torch.nn.functional.pad(torch.block_diag(*parts), (0, span.shape[-1] - rows) * 2)
    still = [i for i, a in enumerate(growths[len(planes) :], 2 * len(planes)) if a == 0]
    pitch = float(centred(span, rows)[0, :rows, rows:].norm())
    if pitch > small and still:
        form[still[0], rows] = pitch
    rates = _ratio(turns, noise * size)
    kinds = (
        (pitch > small, "screw" if planes and not any(growths) else ""),
        (not any(growths) and rates == "1", "so(2)"),
        (not any(growths) and rates is not None, f"so(2) with rates {rates}"),
        (not any(growths), "torus line"),
        (not planes, "anisotropic scaling"),
        (len({growth for growth in growths if growth}) == 1, "spiral"),
    )
    names = [name for holds, name in kinds if holds][:1]
    return [NamedAlgebra(name, form[None], note=_spectrum(linear)) for name in names if name]


def _weighted_scalings(span: Float[Tensor, "c d d"], rows: int, noise: float) -> list[NamedAlgebra]:
    """Several scalings of the features with different weights, such as those of units.

    Each is taken to be the only one that scales some feature; weights that are ratios of small
    numbers within the noise are made exact.
    """
    weights = span[:, :rows, :rows].diagonal(dim1=1, dim2=2)
    rest = span.clone()
    rest[:, range(rows), range(rows)] = 0.0
    if float(rest.norm()) > _ACCEPTED * noise * math.sqrt(len(span)):
        return []
    for i in range(len(weights)):
        # The largest that is left leads, so that errors do not grow.
        left = weights[i:].abs().max(0).values
        lead = int(left.argmax())
        if float(left[lead]) < noise:
            return []
        order = weights[i:, lead].abs().argsort(descending=True) + i
        weights = torch.cat([weights[:i], weights[order]])
        weights[i] /= weights[i, lead].clone()
        others = [j for j in range(len(weights)) if j != i]
        weights[others] -= weights[others][:, [lead]] * weights[i]
    small = _ACCEPTED * noise
    weights = weights.apply_(lambda value: _as_ratio(value, small))
    shown = " and ".join(
        f"({', '.join(f'{value:.3g}' for value in row)})" for row in weights.tolist()
    )
    form = torch.nn.functional.pad(torch.diag_embed(weights), (0, span.shape[-1] - rows) * 2)
    return [
        NamedAlgebra(
            f"weighted scalings({len(span)})",
            form,
            note=f"scalings of the features with weights {shown}",
        )
    ]


def _as_ratio(value: float, small: float) -> float:
    """The nearest ratio of small numbers, if it is near."""
    options = [round(value * unit) / unit for unit in range(1, _LARGEST_RATE + 1)]
    return next((option for option in options if abs(option - value) <= small), value)


def _spectrum(generator: Float[Tensor, "n n"]) -> str:
    """The eigenvalues up to a common factor: the size and the sign of a generator mean nothing."""
    values = sorted(torch.linalg.eigvals(generator).tolist(), key=lambda v: (-abs(v), v.imag))
    unit = abs(values[0]) * (-1 if values[0].real < 0 else 1)
    if not unit:
        return "eigenvalues all 0"
    scaled = [value / unit for value in values if value.imag >= 0]
    return f"eigenvalues in the ratios {', '.join(map(_complex_words, scaled))}"


def _complex_words(value: complex) -> str:
    """Two conjugate numbers, or a real one.

    >>> _complex_words(0.5 + 1j), _complex_words(1j), _complex_words(-0.25 + 0j)
    ('0.5 ± 1i', '± 1i', '-0.25')
    """
    real, imaginary = round(value.real, 2) + 0.0, abs(round(value.imag, 2))
    if not imaginary:
        return f"{real:g}"
    return f"{real:g} ± {imaginary:g}i" if real else f"± {imaginary:g}i"


def _merged(values: list[float], small: float) -> list[float]:
    """Values with neighbours closer than `small` replaced by their mean; near zero, by zero."""
    order = sorted(range(len(values)), key=values.__getitem__)
    merged = list(values)
    group: list[int] = []
    for i in [*order, None]:
        if group and (i is None or values[i] - values[group[-1]] > small):
            mean = sum(values[j] for j in group) / len(group)
            for j in group:
                merged[j] = 0.0 if abs(mean) <= small else mean
            group = []
        if i is not None:
            group.append(i)
    return merged


def _ratio(rates: list[float], small: float) -> str | None:
    """The rates as small whole numbers, such as 1:2, if they are."""
    if not rates:
        return None
    least = min(rates)
    for unit in range(1, _LARGEST_RATE + 1):
        whole = [rate * unit / least for rate in rates]
        if all(abs(w - round(w)) * least < small for w in whole):
            found = sorted({round(w) for w in whole})
            return ":".join(map(str, found)) if found[-1] <= _LARGEST_RATE else None
    return None


# -- fits ------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _fingerprints(d: int, rows: int, dimension: int) -> Float[Tensor, "n m"]:
    """Those of the candidates, in their order."""
    bases = torch.stack([known.generators for known in direct_sums(d, rows, dimension)]).double()
    spans = orthonormal_rows(bases).unflatten(-1, (d, d))
    # A few at a time: all brackets of thousands would fill the memory, and many the cache.
    together = max(1, _BRACKETS // (dimension * d) ** 2)
    return torch.cat([fingerprint(some) for some in spans.split(together)])


@dataclass(frozen=True, eq=False)
class Fit:
    """A candidate moved onto the learned span.

    Attributes
    ----------
    candidate
        What was moved.
    coordinates
        By which kind of change: ``"axes"``, ``"orthonormal"`` or ``"linear"``.
    change
        The change of coordinates P, (d, d): the exact generators are P L P⁻¹.
    misfit
        Root mean square sine of the principal angles that remain.
    """

    candidate: NamedAlgebra
    coordinates: str
    change: Tensor
    misfit: float

    def generators(self) -> Float[Tensor, "c d d"]:
        """The exact algebra in the coordinates of the data."""
        moved = conjugate(self.candidate.generators.double(), self.change)
        # Inverting a permutation leaves minus zeros; adding zero takes their sign.
        return moved + 0.0

    def axes(self) -> list[int] | None:
        """Which axis each canonical one became, where axes went to axes."""
        if self.coordinates != "axes":
            return None
        return self.change.abs().argmax(0).tolist()


@dataclass(frozen=True, eq=False)
class _Learned:
    """A learned span, and how well the generators tell its directions.

    Attributes
    ----------
    span
        An orthonormal basis of the span, (c, d, d).
    sizes
        How strong each of its directions is in generators of norm 1; all 1 if they are orthogonal.
    """

    span: Tensor
    sizes: Tensor

    @property
    def amplification(self) -> float:
        """Error of the span for an error 1 of the generators, root mean square."""
        return min(float(self.sizes.pow(-2).mean().sqrt()), _MOST_AMPLIFIED)

    def weighted(self) -> Float[Tensor, "c d d"]:
        """The span with less weight on what is weak in the generators: mostly noise."""
        return self.span * self.sizes.clamp(max=1.0)[:, None, None]


class _Search:
    """One span, and the fits of candidates to it.

    Fits are made to a basis of the span in which weak directions weigh less: where generators are
    nearly dependent, these are mostly noise.
    """

    def __init__(
        self,
        learned: _Learned,
        rows: int,
        noise: float,
        tolerance: float = _ACCEPTED,
        seed: int = 0,
    ) -> None:
        self.span, self.target = learned.span, learned.weighted()
        self.rows, self.noise, self.d = rows, noise, self.span.shape[-1]
        self.rng = torch.Generator().manual_seed(seed)
        # Noise along the span does not show; a span of everything has none across it.
        across = 1 - len(self.span) / (rows * self.d)
        self.accepted = max(tolerance * noise * math.sqrt(across), 1e-6)
        self.farthest = max(self.accepted * learned.amplification, 1e-6)
        self.as_given = shift(self.span, rows)
        self.without_skew = skew_free(self.span, rows) @ self.as_given

    def accepts(self, fit: Fit) -> bool:
        """Whether the generators lie within the noise of a fit, and the span as near as it can."""
        says_nothing = fit.coordinates == "linear" and fit.candidate.name in _ANY_SPECTRUM
        if fit.misfit > self.accepted or says_nothing:
            return False
        rows = orthonormal(fit.generators()).flatten(1)
        apart = off(self.span.flatten(1), rows).norm() / math.sqrt(len(rows))
        return float(apart) <= self.farthest

    def seen_in(self, frame: Float[Tensor, "d d"]) -> Float[Tensor, "c d d"]:
        """An orthonormal basis of the span in other coordinates."""
        return orthonormal_rows(conjugate(self.span, frame)).unflatten(-1, (self.d, self.d))

    def shortlist(self) -> list[tuple[float, NamedAlgebra, Tensor]]:
        """Candidates by the distance of their fingerprint, and the frame in which it is so near."""
        known = direct_sums(self.d, self.rows, len(self.span))
        found: list[tuple[float, NamedAlgebra, Tensor]] = []
        for frame, handicap in ((self.as_given, 0.0), (self.without_skew, _SKEW_HANDICAP)):
            if known:
                prints = _fingerprints(self.d, self.rows, len(self.span))
                far = (prints - fingerprint(self.seen_in(frame))).square().mean(1).sqrt()
                nearest = far.argsort()[:_SHORTLISTED].tolist()
                found += [(float(far[i]) + handicap, known[i], frame) for i in nearest]
        return sorted(found, key=lambda option: option[0])

    def run(self) -> tuple[Fit | None, list[tuple[str, float]]]:
        """The candidate that lies within the noise, if one does, and the names nearest to it."""
        near = self.shortlist()
        distances: dict[str, float] = {}
        for far, algebra, _ in near:
            distances.setdefault(algebra.name, far)
        options = [(algebra, frame) for far, algebra, frame in near if far < _FARTHEST]
        if len(self.span) == 1:
            free = _one_parameter(self.span, self.rows, self.noise)
            options += [(a, frame) for frame in (self.as_given, self.without_skew) for a in free]
        else:
            weighted = _weighted_scalings(self.span, self.rows, self.noise)
            options += [(a, self.as_given) for a in weighted]
        return self._first_accepted(options), list(distances.items())

    def _first_accepted(self, options: list[tuple[NamedAlgebra, Tensor]]) -> Fit | None:
        tried: list[Fit] = []
        for algebra, frame in options:
            tried.append(self.rigid_fit(algebra, frame))
            if tried[-1].misfit <= self.accepted:
                fit = self.plainest(tried[-1])
                if self.accepts(fit):
                    return fit
        # What has no balanced coordinates may still have skewed ones.
        likely = sorted(tried, key=lambda fit: fit.misfit)[:_REFINED]
        return next(filter(self.accepts, map(self.linear_fit, likely)), None)

    def rigid_fit(self, candidate: NamedAlgebra, frame: Float[Tensor, "d d"]) -> Fit:
        """The best orthonormal change in a frame."""
        canonical, seen = orthonormal(candidate.generators), self.seen_in(frame)
        starts = likely_changes(canonical, seen, self.rows, self.rng)
        directions = infinitesimal_changes(self.d, self.rows, rigid=True)
        change, misfit = descend(canonical, conjugate(self.target, frame), starts, directions)
        return Fit(candidate, "orthonormal", torch.linalg.inv(frame) @ change, misfit)

    def linear_fit(self, fit: Fit) -> Fit:
        """The best linear change near that of a fit."""
        canonical = orthonormal(fit.candidate.generators)
        directions = infinitesimal_changes(self.d, self.rows, rigid=False)
        change, misfit = descend(canonical, self.target, fit.change[None], directions)
        return Fit(fit.candidate, "linear", change, misfit)

    def plainest(self, fit: Fit) -> Fit:
        """The same candidate in the plainest coordinates that explain the span as well."""
        within = _WITHIN * self.noise
        canonical = orthonormal(fit.candidate.generators)
        change, misfit = along_axes(canonical, self.target, fit.change, self.rows, self.rng)
        axes = Fit(fit.candidate, "axes", change, misfit)
        if axes.misfit <= within:
            return axes
        rigid = fit
        if not _is_rigid(fit.change, self.rows):
            rigid = self.rigid_fit(fit.candidate, self.as_given)
        if rigid.misfit > within:
            linear = self.linear_fit(fit)
            rigid = rigid if rigid.misfit <= _PLAINER * linear.misfit else linear
        return axes if axes.misfit <= _PLAINER * rigid.misfit else rigid

    def nearest(self, candidate: NamedAlgebra) -> Fit:
        """A candidate in the plainest coordinates, however far from the span."""
        frames = (self.as_given, self.without_skew)
        fits = [self.rigid_fit(candidate, frame) for frame in frames]
        return self.plainest(min(fits, key=lambda fit: fit.misfit))


def _is_rigid(change: Float[Tensor, "d d"], n: int) -> bool:
    linear = change[:n, :n]
    return bool(torch.allclose(linear @ linear.mT, torch.eye(n, dtype=linear.dtype), atol=1e-6))


# -- names -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Identity:
    """Which algebra was found, and what says so.

    Attributes
    ----------
    name
        Such as ``"so(3)"`` or ``"so(3) ⊕ scaling"``, or that it has none.
    invariants
        Measured on what was learned.
    noise
        The relative error of the generators that was reckoned with.
    description
        What acts where.
    exact
        The named algebra nearest to the learned one, (c, d, d) of norm √D; None without a name.
    cosine
        The smallest cosine of the principal angles between the two; None without a name.
    coordinates
        By which change the exact algebra came from the canonical one: ``"axes"`` (put in another
        order), ``"orthonormal"`` or ``"linear"``; None without a name.
    alternatives
        Other names whose invariants are near, and how near (0 is equal), nearest first.
    reasons
        What the name rests on, in sentences.
    """

    name: str
    invariants: Invariants
    noise: float
    description: str = ""
    exact: Tensor | None = None
    cosine: float | None = None
    coordinates: str | None = None
    alternatives: list[tuple[str, float]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    @property
    def named(self) -> bool:
        """Whether there is a name."""
        return self.exact is not None

    def unnamed(self, *reasons: str) -> Identity:
        """The same without a name, where the exact algebra was found not to be what holds."""
        name = _without_name(self.invariants, self.noise)
        return Identity(name, self.invariants, self.noise, reasons=[*self.reasons[:1], *reasons])

    def in_units(self, exact: Tensor) -> Identity:
        """The same in coordinates of other units, in which the exact algebra is another one."""
        moved = self.exact is not None and not torch.allclose(exact, self.exact, atol=1e-6)
        return replace(self, exact=exact, coordinates="linear" if moved else self.coordinates)

    def to_json(self) -> dict[str, Any]:
        """Plain values, tensors as nested lists."""
        content = {item.name: getattr(self, item.name) for item in fields(self)}
        evidence = {item.name: getattr(self.invariants, item.name) for item in fields(Invariants)}
        evidence["structure_constants"] = self.invariants.structure_constants.tolist()
        exact = None if self.exact is None else self.exact.tolist()
        return content | {"invariants": evidence, "exact": exact}

    def __str__(self) -> str:
        return f"{self.name}: {self.description}" if self.description else self.name


def identify(
    generators: Tensor,
    *,
    rows: int | None = None,
    space_dim: int | None = None,
    noise: float | None = None,
    tolerance: float = _ACCEPTED,
    seed: int = 0,
) -> Identity:
    """Name the Lie algebra that generators span.

    Parameters
    ----------
    generators
        (c, d, d), any basis of the span.
    rows
        `Action.rows`: how many leading rows may differ from zero. Fewer than d where the matrices
        are homogeneous, and then the last column translates; d unless given.
    space_dim
        D in the norm √D of the exact generators; `rows` unless given.
    noise
        Relative error of the generators: what is of its size counts as none. Unless given it is
        3 %, or up to 5 % where the closure residual shows more.
    tolerance
        A candidate may miss the span by this many times the noise.
    seed
        Of the starts of the fits.

    Examples
    --------
    >>> from lieaugmenter.lie import catalogue
    >>> tilted = torch.linalg.qr(torch.tensor([[2.0, 1, 0], [1, 2, 1], [0, 1, 3]])).Q
    >>> found = identify(tilted @ catalogue.lift(catalogue.so(2)) @ tilted.T)
    >>> print(found)
    so(2): so(2) on a plane of R^3
    >>> print(identify(catalogue.named("se(2)"), rows=2).name)
    se(2)
    >>> print(identify(catalogue.so(3)[:2]).name)
    not closed (residual 0.71)
    """
    learned, rows = _checked(generators, rows)
    span = learned.span
    closure = closure_residual(span)
    if noise is None:
        shown = closure * math.sqrt(rows) / 2 / learned.amplification
        noise = min(max(shown, USUAL_NOISE), _LARGEST_NOISE)
    invariants = measure(span, rows=rows, noise=noise)
    reasons = [f"Brackets leave the span by {closure:.3f}, with a noise of {noise:.3f} assumed."]
    if len(span) < len(generators):
        reasons.append(f"The {len(generators)} generators span {len(span)} dimensions.")
    search = _Search(learned, rows, noise, tolerance, seed)
    worth_it = closure <= _CLOSED * noise * learned.amplification
    fit, near = search.run() if worth_it else (None, [])
    if fit is None:
        return Identity(
            _without_name(invariants, noise),
            invariants,
            noise,
            description=_spectrum(span[0, :rows, :rows]) if len(span) == 1 else "",
            alternatives=near,
            reasons=reasons + _doubts(generators, noise),
        )
    exact = _finished(fit, generators, space_dim or rows)
    cosine = float(principal_cosines(exact.double(), span).min())
    return Identity(
        fit.candidate.name,
        invariants,
        noise,
        description=fit.candidate.describe(rows, fit.axes()),
        exact=exact,
        cosine=cosine,
        coordinates=fit.coordinates,
        alternatives=[(name, far) for name, far in near if name != fit.candidate.name],
        reasons=[*reasons, *_evidence(fit, cosine, invariants, rows, search.accepted)],
    )


def snap(
    generators: Tensor,
    name: str | Identity | None = None,
    *,
    rows: int | None = None,
    space_dim: int | None = None,
    noise: float | None = None,
    seed: int = 0,
) -> Float[Tensor, "k d d"]:
    """The exact algebra nearest to the learned one, a canonical basis in the data's coordinates.

    Parameters
    ----------
    generators
        (c, d, d), any basis of the span.
    name
        The algebra, as `identify` names it, or what `identify` returned. Unless given it is
        identified; a ValueError says so if it has no name.
    rows, space_dim, noise, seed
        As for `identify`.

    Examples
    --------
    >>> turn = torch.tensor([[[0.02, -1.0, 0.0], [0.99, 0.01, 0.0], [0.0, 0.02, -0.01]]])
    >>> snap(turn, space_dim=2)
    tensor([[[ 0., -1.,  0.],
             [ 1.,  0.,  0.],
             [ 0.,  0.,  0.]]])
    """
    if isinstance(name, str):
        return _snap_to(generators, name, rows, space_dim, noise, seed)
    options = {"rows": rows, "space_dim": space_dim, "noise": noise, "seed": seed}
    found = identify(generators, **options) if name is None else name
    if found.exact is None:
        raise ValueError(f"{found.name}: there is no exact algebra to snap to; give its name")
    return found.exact


def _snap_to(
    generators: Tensor,
    name: str,
    rows: int | None,
    space_dim: int | None,
    noise: float | None,
    seed: int,
) -> Tensor:
    """The algebra of a name nearest to the learned one, however far."""
    learned, rows = _checked(generators, rows)
    span = learned.span
    search = _Search(learned, rows, USUAL_NOISE if noise is None else noise, seed=seed)
    known = direct_sums(search.d, rows, len(span))
    if len(span) == 1:
        known += tuple(_one_parameter(span, rows, search.noise))
    fitting = [algebra for algebra in known if algebra.name == name]
    if not fitting:
        names = ", ".join(sorted({algebra.name for algebra in known}))
        raise ValueError(
            f"no {name!r} with {len(span)} generators of size {search.d}; choose from {names}"
        )
    fits = [search.nearest(algebra) for algebra in fitting]
    return _finished(min(fits, key=lambda fit: fit.misfit), generators, space_dim or rows)


def _checked(generators: Tensor, rows: int | None) -> tuple[_Learned, int]:
    """What was learned and the number of rows, or an error for users."""
    if generators.ndim != 3 or generators.shape[1] != generators.shape[2]:
        raise ValueError(f"generators have shape {tuple(generators.shape)}; expected (c, d, d)")
    if not bool(generators.isfinite().all()) or not bool(generators.any()):
        raise ValueError("generators must be finite and not all zero")
    d = generators.shape[-1]
    rows = d if rows is None else rows
    if rows not in (d, d - 1):
        raise ValueError(f"rows={rows}: generators of size {d} have {d} rows, or {d - 1} if affine")
    masked = generators.detach().double().cpu().clone()
    masked[:, rows:] = 0.0
    span = orthonormal(masked)
    units = masked.flatten(1) / masked.flatten(1).norm(dim=1, keepdim=True).clamp_min(1e-30)
    sizes = (units @ span.flatten(1).mT).norm(dim=0)
    return _Learned(span, sizes / sizes.square().mean().sqrt()), rows


def _finished(fit: Fit, learned: Tensor, space_dim: int) -> Float[Tensor, "k d d"]:
    """The exact generators of norm √D, signed like the learned ones that they are nearest to."""
    exact = fit.generators()
    exact = exact * (math.sqrt(space_dim) / exact.flatten(1).norm(dim=1))[:, None, None]
    inner = torch.einsum("iab,jab->ij", exact, learned.detach().double().cpu())
    nearest = inner.gather(1, inner.abs().argmax(1, keepdim=True)).squeeze(1)
    signed = exact * torch.where(nearest < 0, -1.0, 1.0)[:, None, None] + 0.0
    return signed.to(dtype=learned.dtype, device=learned.device)


def _without_name(found: Invariants, noise: float) -> str:
    """What to call a span that no named algebra explains."""
    if found.closure > _CLOSED * noise:
        return f"not closed (residual {found.closure:.2f})"
    kind = f"compact {found.kind}" if found.compact else found.kind
    return f"unnamed {found.dimension}-dimensional {kind} algebra"


def _doubts(generators: Tensor, noise: float) -> list[str]:
    """What keeps a span from having a name, and may not be its fault."""
    doubts = ["No named algebra lies within the noise of the span."]
    flat = generators.detach().double().cpu().flatten(1)
    sizes = torch.linalg.svdvals(flat / flat.norm(dim=1, keepdim=True).clamp_min(1e-30))
    weakest = float(sizes[-1] / sizes[0])
    if weakest < SMALL * noise:
        doubts.append(
            f"The weakest direction of the generators is {weakest:.3f} of the strongest: it may be "
            f"noise, and then there is one generator too many."
        )
    return doubts


def _evidence(
    fit: Fit, cosine: float, learned: Invariants, rows: int, accepted: float
) -> list[str]:
    """Sentences that a named algebra rests on."""
    exact = measure(fit.generators(), rows=rows, noise=1e-5)
    agreeing = {
        "Killing signature": (learned.killing_signature, exact.killing_signature),
        "centre": (learned.centre, exact.centre),
        "derived series": (learned.derived, exact.derived),
        "number of preserved metrics": (learned.metrics, exact.metrics),
        "number of preserved symplectic forms": (learned.symplectic, exact.symplectic),
    }
    same = [f"{what} {mine}" for what, (mine, theirs) in agreeing.items() if mine == theirs]
    other = [
        f"{what} {mine}, where the exact algebra has {theirs}"
        for what, (mine, theirs) in agreeing.items()
        if mine != theirs
    ]
    sentences = [
        f"{fit.candidate.name} in {_COORDINATES[fit.coordinates]} lies within {fit.misfit:.3f} of "
        f"the span (accepted up to {accepted:.3f}); the smallest cosine is {cosine:.5f}."
    ]
    if same:
        sentences.append(f"As it should be: {', '.join(same)}.")
    if other:
        sentences.append(f"Seen through the noise: {', '.join(other)}.")
    return sentences


_COORDINATES = {
    "axes": "the coordinates of the data",
    "orthonormal": "orthonormal coordinates",
    "linear": "skewed coordinates",
}
