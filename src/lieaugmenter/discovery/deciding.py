"""From evidence to an answer: which generators, what they are, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions.base import batch_size
from lieaugmenter.analysis.components import Components
from lieaugmenter.analysis.identify import Identity
from lieaugmenter.analysis.verdict import Verdict, decide, words_on_exactness
from lieaugmenter.discovery.evidence import HARDLY, STEPS_OF_RANGE, Evidence, Extent
from lieaugmenter.discovery.spans import normalised


@dataclass(frozen=True, eq=False)
class Discovery:
    """An answer: which generators, what they are, and how sure that is.

    Attributes
    ----------
    span
        (c, d, d), each of norm √D: the exact algebra where it has a name and holds as well as what
        was found. Empty where nothing is certified.
    found
        The same before it was made exact.
    identity
        What the span is; None where there is nothing, or it is too large to be named.
    verdict
        The verdict, with the name, the range and the discrete components.
    components
        What was tested beside the identity component; None where nothing was found.
    evidence
        What all this rests on.
    largest
        The largest coefficient that was asked for.
    extents
        How far each generator of the span holds.
    """

    span: Float[Tensor, "c d d"]
    found: Float[Tensor, "c d d"]
    identity: Identity | None
    verdict: Verdict
    components: Components | None
    evidence: Evidence
    largest: float
    extents: tuple[Extent, ...] = ()

    def reach(self) -> float | None:
        """The range to train with; None without generators.

        As far as no generator surely fails, nor moves samples to where there are no data: among
        them the generator is certified, and what holds for every small step holds for many. Where
        already the smallest step does, that step.
        """
        smallest = self.largest / STEPS_OF_RANGE
        return min((max(extent.open_until, smallest) for extent in self.extents), default=None)


def discover(evidence: Evidence, *, largest: float, labels: bool) -> Discovery:
    """Decide what the evidence says, name it, and ask how far it holds.

    Parameters
    ----------
    evidence
        From `gather`.
    largest
        The largest coefficient to ask for.
    labels
        Whether the targets are labels.
    """
    table, bench = evidence.dimensions, evidence.bench
    samples = batch_size(bench.samples)
    verdict = decide(table, evidence.quality, labels=labels, samples=samples, trial=evidence.trial)
    verdict.reasons.extend(words_on_columns(evidence))
    # Teams on which it was imposed say nothing about its defect, nor about how far it holds.
    unimposed = evidence.before or evidence
    best = table.generators[: max(1, verdict.dimension)]
    verdict = verdict.among(unimposed.by_single_networks(best))
    if verdict.outcome != "certified":
        none = table.generators[:0]
        return Discovery(none, none, None, verdict, None, evidence, largest)
    found = normalised(table.generators[: verdict.dimension], bench.action, bench.spread)
    span, identity = evidence.named(verdict.dimension)
    snapped = not torch.equal(span, found)
    row = unimposed.bench.judge(span)
    verdict = replace(verdict, defect=row.defect, upper=row.upper, lower=row.lower)
    if identity is not None:
        verdict = verdict.naming(identity)
        if snapped:
            verdict.reasons.append(
                f"Made exact, its defect on the same samples is {row.defect:.3g} (95 % bootstrap "
                f"bounds {row.lower:.3g} to {row.upper:.3g})."
            )
            verdict.reasons.extend(words_on_exactness(row))
    components = evidence.components(generators=span, identity=verdict.group)
    extents = tuple(unimposed.extent(generator, largest) for generator in span)
    local = _words_on_failing(extents)
    verdict = replace(
        verdict,
        reasons=[*verdict.reasons, *local],
        holds_until=[extent.holds_until for extent in extents],
        beyond=[extent.beyond for extent in extents],
        # Neither elements that surely fail nor generators without a name make a group.
        components=None if local or verdict.group is None else components.group,
    )
    return Discovery(span, found, identity, verdict, components, evidence, largest, extents)


def words_on_columns(evidence: Evidence) -> list[str]:
    """Which columns of a wide table to leave out, where not all directions were looked at."""
    columns = evidence.hardly_matter() if evidence.dimensions.left_out else []
    if not columns:
        return []
    which = f"{'axis' if len(columns) == 1 else 'axes'} {', '.join(map(str, columns))}"
    return [
        f"Along {which} what both teams predict hardly changes (less than {HARDLY:.1%} each of all "
        f"that it changes by): leave these columns out, and more can be told of the others."
    ]


def _words_on_failing(extents: Sequence[Extent]) -> list[str]:
    """Where finite elements surely fail, although their generator holds."""
    failing = [extent.fails_at for extent in extents if extent.fails_at is not None]
    if not failing:
        return []
    return [
        f"Elements with a coefficient of {min(failing):.3g} surely change predictions: it is a "
        f"symmetry of small transformations, not of a whole group."
    ]
