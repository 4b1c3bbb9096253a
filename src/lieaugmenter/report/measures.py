"""What is measured in an experiment, how it is written, and what the paper reports of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lieaugmenter.experiments.catalogue import AMPLITUDES, IMAGES, MOLECULES
from lieaugmenter.experiments.results import Statistic
from lieaugmenter.experiments.spec import Experiment
from lieaugmenter.experiments.targets import OTHER_DATA, TARGETS, Reported

NO_VALUE = "–"
# The paper has one task without symmetry, of which there are two readings.
_SAME_TASK = {"no-symmetry-deviation": "no-symmetry"}


@dataclass(frozen=True)
class Measure:
    """A table of an experiment's section.

    Attributes
    ----------
    key, title
        In a result, and for readers.
    write
        One number as text.
    note
        How to read it.
    higher
        Whether more of it is better. It is then compared by differences, not by factors.
    of_paper
        Whether only rows are shown that the paper has.
    same_unit
        Whether ours and the paper's are known to be of one unit; if not, they are not compared.
    """

    key: str
    title: str
    write: Callable[[float], str]
    note: str = ""
    higher: bool = False
    of_paper: bool = False
    same_unit: bool = True

    def is_better(self, a: float, b: float) -> bool:
        """Whether a is better than b."""
        return a > b if self.higher else a < b

    def difference(self, a: float, b: float) -> str:
        """How far a and b are apart, for readers.

        >>> ACCURACY.difference(98.5, 99.0), MSE.difference(1.0, 4.0)
        ('0.50 points', '× 4.0')
        """
        return f"{abs(a - b):.2f} points" if self.higher else factor(a, b)


def small(value: float) -> str:
    """As the paper's tables have it."""
    return f"{value:.2e}"


def _plain(value: float) -> str:
    """Three digits, and no power of ten where there need be none.

    >>> _plain(508.0), _plain(0.04631)
    ('508', '0.0463')
    """
    return f"{value:.0f}" if 100 <= value < 1e6 else f"{value:.3g}"


def _three_digits(value: float) -> str:
    return f"{value:#.3g}"


def _four_digits(value: float) -> str:
    return f"{value:#.4g}"


def per_cent(value: float) -> str:
    """As the paper's tables have accuracies."""
    return f"{value:.2f}"


MSE = Measure("mse", "Test error (MSE)", small)
SECONDS = Measure("train-seconds", "Training time (seconds)", _plain)
ACCURACY = Measure("accuracy", "Test accuracy (%)", per_cent, higher=True)
DIRECT = Measure(
    "accuracy-direct",
    "Alternative inference: test accuracy without averaging (%)",
    per_cent,
    "The network sees every test image once, as it is.",
    higher=True,
    of_paper=True,
)
EQUIVARIANCE = Measure(
    "equivariance",
    "Equivariance error of the logits, averages over elements compared",
    _three_digits,
    "The errors of single elements can cancel in it. Mean over the logits.",
    same_unit=False,
)
EQUIVARIANCE_2 = Measure(
    "equivariance-2",
    "Equivariance error of the logits, average over elements of the error",
    _three_digits,
    "Nothing cancels in it. Mean over the logits.",
    same_unit=False,
)
MAE = Measure("mae", "Test error (MAE in meV)", _three_digits)
MOLECULE_MEASURES = (
    MAE,
    Measure(
        "equivariance",
        "Equivariance error in eV, averages over elements compared",
        small,
        "The errors of single elements can cancel in it. Of what predicts, averages included.",
    ),
    Measure(
        "equivariance-2",
        "Equivariance error in eV, average over elements of the error",
        small,
        "Nothing cancels in it. The paper gives no unit; eV is this project's guess.",
        same_unit=False,
    ),
    SECONDS,
)
IMAGE_MEASURES = (ACCURACY, DIRECT, EQUIVARIANCE, EQUIVARIANCE_2, SECONDS)
_EACH_ELEMENT = Measure(
    "equivariance-2",
    "Equivariance error, average over elements of the error",
    small,
    "Nothing cancels in it. Mean over output dimensions.",
)
VECTOR_MEASURES = (
    MSE,
    Measure(
        "equivariance",
        "Equivariance error, averages over elements compared",
        small,
        "The errors of single elements can cancel in it. Mean over output dimensions.",
    ),
    _EACH_ELEMENT,
    SECONDS,
    Measure(
        "displacement",
        "Distance from doing nothing: E‖gx - x‖₂",
        _four_digits,
        "Smaller is closer to the identity.",
        of_paper=True,
    ),
    Measure(
        "distance",
        "Distance from doing nothing: E‖g - I‖_F",
        _four_digits,
        "Smaller is closer to the identity.",
        of_paper=True,
    ),
)
MOMENTA_MEASURES = (
    MSE,
    Measure(
        "mse-direct",
        "Test error (MSE) of direct predictions",
        small,
        "The network sees every event once, as it is; validation data have no say in it.",
    ),
    replace(
        _EACH_ELEMENT,
        title="Equivariance error under the Lorentz group",
        note="Of what predicts, averages included; elements are drawn up to γ along all six.",
    ),
    SECONDS,
)


def of_images(experiment: Experiment) -> bool:
    """Whether an experiment classifies images."""
    return experiment.name in IMAGES


def of_momenta(experiment: Experiment) -> bool:
    """Whether an experiment is one on four-momenta."""
    return experiment.name in AMPLITUDES


def measures_of(experiment: Experiment) -> tuple[Measure, ...]:
    """The tables of an experiment's section; the first one is always there."""
    if experiment.name in MOLECULES:
        return MOLECULE_MEASURES
    if of_momenta(experiment):
        return MOMENTA_MEASURES
    return IMAGE_MEASURES if of_images(experiment) else VECTOR_MEASURES


def paper_value(experiment: Experiment, row: str, measure: str) -> Reported | None:
    """What the paper reports, if it does."""
    name = _SAME_TASK.get(experiment.name, experiment.name)
    return TARGETS.get((name, row, measure))


def comparable_value(experiment: Experiment, row: str, measure: Measure) -> Reported | None:
    """What the paper reports, if it does, of the same data and in the same unit."""
    if experiment.name in OTHER_DATA or not measure.same_unit:
        return None
    return paper_value(experiment, row, measure.key)


def as_text(value: Reported | Statistic | None, measure: Measure) -> str:
    """Mean ± standard deviation; of one run the value alone."""
    if value is None:
        return NO_VALUE
    if isinstance(value, Statistic) and value.n == 1:
        return measure.write(value.mean)
    # Durations of the paper have no spread, and those of a stack are all the same.
    if value.std is None or (value.std == 0 and measure.key == "train-seconds"):
        return measure.write(value.mean)
    return f"{measure.write(value.mean)} ± {measure.write(value.std)}"


def factor(a: float, b: float) -> str:
    """How many times the smaller the larger is.

    >>> factor(2e-5, 1e-4), factor(0.0, 1.0)
    ('× 5.0', '× ∞')
    """
    low, high = sorted((a, b))
    if low <= 0:
        return "× ∞"
    ratio = high / low
    if ratio >= 100:
        return f"× {_plain(ratio)}"
    return f"× {ratio:.2f}" if ratio < 2 else f"× {ratio:.1f}"
