"""What a fitted estimator tells: its findings as data, words, pages and other forms."""

from __future__ import annotations

import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from lieaugmenter.actions import Action, AffineAction, FourVectorAction, ImageAction
from lieaugmenter.analysis.bench import Dimensions
from lieaugmenter.analysis.identify import Identity
from lieaugmenter.analysis.verdict import Verdict
from lieaugmenter.discovery import SEARCHED
from lieaugmenter.estimators.inputs import names_of_axes
from lieaugmenter.estimators.settings import Settings, recorded
from lieaugmenter.estimators.words import (
    chosen_by_held_out,
    lines_of_table,
    sentence_of_one,
    sentence_of_teams,
    with_names,
)
from lieaugmenter.export.manifest import FORMS, Manifest, made_by
from lieaugmenter.learning import LieAugmenter
from lieaugmenter.learning.predictor import Predictor
from lieaugmenter.learning.trainer import History
from lieaugmenter.report.findings import Findings
from lieaugmenter.report.sweep import sweep
from lieaugmenter.report.trials import departure, ways_to_predict
from lieaugmenter.runs import environment

# Of the held-out samples that are kept, how many are shown in the report.
_SHOWN_SAMPLES = 8
# Larger generators are looked at in the report, not in a terminal.
_LARGEST_PRINTED = 8


class Fitted(Settings):
    """What was found, once `fit` has set it; see `SymmetryRegressor` for the attributes."""

    sample_shape_: tuple[int, ...]
    predictor_: Predictor
    history_: History
    network_: nn.Module
    augmenter_: LieAugmenter
    generators_: np.ndarray
    learned_: np.ndarray
    coef_range_: list[float]
    seed_agreement_: float | None
    dimensions_: Dimensions | None
    verdict_: Verdict
    identity_: Identity | None
    symmetries_: list[dict[str, Any]]
    n_samples_: int
    # A row for each seed, what identifies the data, and held-out samples to be tried.
    _seeds: list[dict[str, Any]]
    _data: dict[str, Any]
    _quality: float
    _seconds: float
    _tried: tuple[Tensor, ...]

    def findings(self, **changes: Any) -> Findings:
        """What was found, for a report; keyword arguments replace fields (title, truth, …)."""
        check_is_fitted(self, "verdict_")
        verdict, views, chosen = self.verdict_, self.predictor_.views, self._chosen()
        classes = self.predictor_.classes
        identity, dimensions = self.identity_, getattr(self, "dimensions_", None)
        table = [dict(row) for row in self.symmetries_]
        final = next((row for row in table if row["dimension"] == len(self.generators_)), {})
        found: dict[str, Any] = {
            "title": "Symmetry discovery",
            "sentence": self.sentence(),
            "verdict": verdict,
            "generators": torch.from_numpy(self.generators_),
            "learned": torch.from_numpy(self.learned_),
            "ranges": self.coef_range_,
            "action": self.action if isinstance(self.action, str) else type(self.action).__name__,
            "feature_names": self._axis_names(),
            "samples": self._tried[0][:_SHOWN_SAMPLES],
            "exact": None if identity is None else identity.exact,
            "table": table,
            "spectrum": [] if dimensions is None else _spectrum(dimensions),
            "algebra": None if identity is None else _algebra(identity, self._axis_names()),
            **self._trials(),
            "seeds": self._seeds,
            "history": self.history_.records,
            "numbers": {
                "task": f"{classes} classes" if classes else "regression",
                "samples": self.n_samples_,
                "generators": len(self.generators_),
                "defect on held-out data": verdict.defect,
                "95 % upper bound": verdict.upper,
                **self._explained(),
                f"held-out {self._loss_name()}": final.get("validation_loss"),
                **({"chosen on these samples": chosen} if chosen else {}),
                "predictions": f"averaged over {views} elements" if views else "direct",
                "agreement of seeds (smallest cosine)": self.seed_agreement_,
                **self._how_it_was_read(),
                "training time of the predictor (s)": round(self.history_.seconds, 1),
                "time of everything since it was last begun (s)": round(self._seconds, 1),
            },
            "settings": recorded(self),
            "environment": environment(),
        }
        return Findings(**(found | changes))

    def _explained(self) -> dict[str, float | None]:
        """How much of held-out data is predicted, and by whom."""
        if self.dimensions_ is None:
            return {"held-out variation explained": self.verdict_.quality}
        return {
            "held-out variation explained by the teams": self.verdict_.quality,
            "held-out variation explained by the predictor": self._quality,
        }

    def _loss_name(self) -> str:
        return "negative log-likelihood" if self.predictor_.classes else "mean squared error"

    def _chosen(self) -> str:
        return chosen_by_held_out(generators=len(self.generators_), seeds=len(self._seeds))

    def _how_it_was_read(self) -> dict[str, str]:
        """For the record: what a verdict on a stream rests on."""
        if "read" not in self._data:
            return {}
        judged = f"judged on {self._data['held_out']} held-out samples drawn at random"
        searched = ""
        if self.dimensions_ is not None:
            moved = " and judged, as well," if self.dimensions_.moved else ""
            searched = f", generators ordered{moved} on up to {SEARCHED} others"
        return {"data": f"read piece by piece; {judged}{searched}"}

    def _trials(self) -> dict[str, Any]:
        """What the predictor does when samples move: asked once, for it takes a while."""
        # A fit makes a new predictor; trials of another one are out of date.
        if getattr(self, "_tried_predictor", None) is not self.predictor_:
            x, y = self._tried
            labels = getattr(self, "classes_", None)
            names, ranges = self._axis_names(), self.coef_range_
            self._trial_results = {
                "sweep": sweep(self.predictor_, x, y, ranges, names=names, labels=labels),
                "departure": departure(self.predictor_, x, y, ranges),
                "predictors": ways_to_predict(self.predictor_, x, y),
            }
            self._tried_predictor = self.predictor_
        return self._trial_results

    def sentence(self) -> str:
        """The result in two sentences that can be pasted, what was not tested included."""
        check_is_fitted(self, "verdict_")
        written = sentence_of_one if self.dimensions_ is None else sentence_of_teams
        return written(
            self.verdict_,
            self.identity_,
            generators=len(self.generators_),
            samples=self.n_samples_,
            names=self._axis_names(),
            affine=isinstance(self.augmenter_.action, AffineAction),
        )

    def _axis_names(self) -> list[str]:
        action = self.augmenter_.action
        if isinstance(action, ImageAction):
            return ["x", "y", "1"]
        if isinstance(action, FourVectorAction) and self.feature_names is None:
            return ["E", "px", "py", "pz"]
        names = names_of_axes(self, self.sample_shape_[-1])
        return [*names, "1"] if isinstance(action, AffineAction) else names[: action.dim]

    def report(self, path: str | Path) -> Path:
        """Write a self-contained page about what was found.

        Parameters
        ----------
        path
            Of the .html file.
        """
        # Here, because fitting and predicting should not need matplotlib.
        from lieaugmenter.report.html import write_report

        return write_report(self.findings(), Path(path))

    def export(self, to: str = "torch", **options: Any) -> Any:
        """The result in another form.

        Parameters
        ----------
        to
            ``"torch"``: a module that maps inputs to averaged predictions in the units of the
            data. ``"json"``: a versioned dictionary of plain values. ``"latex"``: a table to
            paste. ``"sympy"``: a list of matrices. ``"transform"``: a module that moves samples by
            random elements. ``"network"``: an equivariant network of the exact algebra, to train.
        options
            Of the form, see `lieaugmenter.export.Manifest`: ``exact`` and ``digits`` of formulas,
            ``hidden`` of the network, …
        """
        check_is_fitted(self, "verdict_")
        if to not in (*FORMS, "torch"):
            raise ValueError(f"unknown export {to!r}; choose from {', '.join(FORMS)}, torch")
        if to == "torch":
            if options:
                raise ValueError(f"export('torch') has no option {', '.join(options)}")
            return copy.deepcopy(self.predictor_)
        if to == "transform" and isinstance(self.action, Action):
            options.setdefault("action", self.action)
        return self.manifest().export(to, **options)

    def manifest(self) -> Manifest:
        """What was found as data, which need neither this estimator nor what it was fitted on."""
        check_is_fitted(self, "verdict_")
        settings, identity = recorded(self), self.identity_
        prediction = self.predictor_.predict(torch.zeros(1, *self.sample_shape_), views=0)
        return Manifest(
            generators=torch.from_numpy(self.learned_),
            exact=None if identity is None else identity.exact,
            ranges=self.coef_range_,
            action=settings["action"],
            output=settings["output"],
            feature_names=self._axis_names(),
            in_shape=tuple(self.sample_shape_),
            out_shape=tuple(prediction.shape[1:]) or (1,),
            algebra=self.verdict_.group,
            description="" if identity is None else identity.description,
            scale=self.predictor_.x_scale,
            law=self.sampler,
            verdict=self.verdict_.to_json(),
            made=made_by(settings, environment()),
        )

    def __str__(self) -> str:
        if not hasattr(self, "verdict_"):
            return repr(self)
        chosen = self._chosen()
        lines = [
            f"{type(self).__name__}  verdict: {self.verdict_}",
            *lines_of_table(self.symmetries_, "seeds" if self.dimensions_ is None else "halves"),
            *([f"  held-out loss: {chosen}, chosen on these samples"] if chosen else []),
            *(f"  {reason}" for reason in self.verdict_.reasons),
        ]
        if self.generators_.shape[-1] <= _LARGEST_PRINTED:
            lines += [self.augmenter_.summary()]
        return "\n".join(lines)


def _spectrum(dimensions: Dimensions) -> list[dict[str, Any]]:
    """The rows of a table, and whether each of them counts as a symmetry."""
    visible = dimensions.visible
    return [{**asdict(row), "holds": row.holds(visible=visible)} for row in dimensions.rows]


def _algebra(identity: Identity, names: list[str]) -> dict[str, Any]:
    """What is known about the algebra, without its tensors, and with the names of features."""
    content = identity.to_json()
    content["description"] = with_names(content["description"], names)
    evidence = content.pop("invariants") | {"kind": identity.invariants.kind}
    del content["exact"], evidence["structure_constants"]
    return content | {"invariants": evidence}
