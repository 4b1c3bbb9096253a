"""What was found: how sure it is, what the algebra is called, and rows of numbers about it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from torch import Tensor

from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.analysis.identify import LARGEST_NAMED, Identity, identify
from lieaugmenter.analysis.verdict import Verdict, assess, defects, quality_of
from lieaugmenter.discovery import Evidence
from lieaugmenter.learning.predictor import Predictor

# Held-out samples on which the defect is measured.
_DEFECT_SAMPLES = 1000
# Dimensions in the table beyond the one that was found.
_ROWS_BEYOND = 3


def judge(
    predictor: Predictor, x: Tensor, y: Tensor, *, n_seeds: int, seed: int
) -> tuple[Verdict, Identity | None]:
    """The verdict on generators that were learned, by held-out data, and the algebra they span."""
    network, augmenter = predictor.network, predictor.augmenter
    device = predictor.y_scale.device
    # The direct prediction: averaging over a wrong symmetry would hide that it was learned.
    quality = quality_of(predictor.predict(x, views=0), y)

    def outputs(batch: Tensor) -> Tensor:
        values = network(batch)
        return values.log_softmax(-1) if predictor.classes else values

    shown = predictor.scale_x(x[:_DEFECT_SAMPLES].to(device))
    along, elsewhere = defects(
        outputs,
        shown,
        augmenter.generators.detach(),
        mask=augmenter.action.mask,
        action=augmenter.action,
        output=augmenter.output,
        seed=seed,
    )
    free = int(augmenter.action.mask.sum())
    verdict = assess(along, elsewhere, quality, free=free, n_seeds=n_seeds, seed=seed)
    identity = _identified(predictor)
    if identity is not None:
        verdict = verdict.naming(identity)
    if predictor.views == 0:
        verdict.reasons.append(
            "Averaging predictions over the learned elements makes them worse on held-out "
            "data, which speaks against the symmetry, or against so large a range."
        )
    return verdict, identity


def _identified(predictor: Predictor) -> Identity | None:
    """Which algebra the generators span; None where that cannot be told.

    Asked in the units of training, in which translations weigh as much as rotations.
    """
    action = predictor.augmenter.action
    if action.dim > LARGEST_NAMED or action.rows not in (action.dim, action.dim - 1):
        return None
    learned = predictor.augmenter.generators.detach().cpu()
    try:
        found = identify(learned, rows=action.rows, space_dim=action.space_dim)
    except (RuntimeError, ValueError) as error:
        # A finished training is worth more than its name.
        warnings.warn(f"the algebra could not be named ({error})", stacklevel=3)
        return None
    return in_units_of_data(predictor, found)


def in_units_of_data(predictor: Predictor, found: Identity | None) -> Identity | None:
    """An identity that was found in the units of training."""
    if found is None or found.exact is None:
        return found
    return replace(found, exact=predictor.in_units_of_data(found.exact))


def agreement(spans: list[Tensor]) -> float | None:
    """Smallest principal cosine between the spans of any two seeds; None where there is none."""
    if len(spans) < 2 or not all(len(span) for span in spans):
        return None
    pairs = [(a, b) for i, a in enumerate(spans) for b in spans[i + 1 :]]
    return min(float(principal_cosines(a, b).min()) for a, b in pairs)


def seed_rows(spans: list[Tensor], losses: list[float]) -> list[dict[str, Any]]:
    """Of each training run its held-out loss, and how its span agrees with those of all runs."""

    def cosine(a: Tensor, b: Tensor) -> float | None:
        return float(principal_cosines(a, b).min()) if len(a) and len(b) else None

    return [
        {"loss": loss, "cosines": [cosine(span, other) for other in spans]}
        for span, loss in zip(spans, losses, strict=True)
    ]


def table_of_one(
    verdict: Verdict, *, chosen: int, loss: float, agreement: float | None
) -> list[dict[str, Any]]:
    """The one row for a given number of generators."""
    return [
        {
            "dimension": chosen,
            "validation_loss": loss,
            "defect": verdict.defect,
            "upper": verdict.upper,
            "closure": None,
            "seed_agreement": agreement,
            "chosen": True,
        }
    ]


def table_of_many(
    evidence: Evidence, *, chosen: int, losses: dict[int, float]
) -> list[dict[str, Any]]:
    """A row for no generator, and one for each dimension up to a few beyond what was found.

    Where the teams have nothing in common there is nothing to measure, and no number.
    """
    table = evidence.dimensions
    measured = zip(table.rows, table.agreement, strict=True) if table.agree else ()
    found = {0: (None, None)} | {row.dimension: (row, seeds) for row, seeds in measured}
    return [
        {
            "dimension": dimension,
            "validation_loss": losses.get(dimension),
            "defect": row and row.defect,
            "upper": row and row.upper,
            "closure": row and row.closure,
            "seed_agreement": agreement,
            "chosen": dimension == chosen,
        }
        for dimension, (row, agreement) in found.items()
        if dimension <= chosen + _ROWS_BEYOND
    ]
