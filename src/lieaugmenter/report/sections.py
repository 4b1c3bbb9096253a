"""The section of an experiment in the reproduction document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lieaugmenter.experiments.catalogue import MOLECULES
from lieaugmenter.experiments.spec import Experiment
from lieaugmenter.report.comparison import discovery, measure_table, rows_of
from lieaugmenter.report.explanations import EXPLANATIONS, TABLE_NOTES
from lieaugmenter.report.finished import Finished, ran_on
from lieaugmenter.report.image_figures import confusion_words, image_captions
from lieaugmenter.report.measures import measures_of, of_images
from lieaugmenter.report.paper_figures import captions
from lieaugmenter.report.words import label, seed_count

_TRANSFORMER = "a transformer of 8 blocks and 128 channels"
# Networks that have no width to be told.
_NETWORKS = {
    "histology-efficientnet": "EfficientNet-B0 with group norm",
    "histology-vit": "a small Vision Transformer",
    "amplitudes": _TRANSFORMER,
    "amplitudes-boosted": _TRANSFORMER,
    "qm9-homo": "LieConv-Trivial",
    "qm9-lumo": "LieConv-Trivial",
}


def section(finished: Finished) -> str:
    """What there is to say of an experiment, without its heading."""
    parts = [settings_line(finished)]
    if finished.experiment.name.startswith("two-body"):
        parts.append(
            "Mask 2 has four planes that do not interact, mask 4 keeps positions and momenta "
            "apart, and without a mask every entry is learned."
        )
    whole = EXPLANATIONS.get((finished.experiment.name, ""))
    if whole:
        parts.append(whole)
    measures = measures_of(finished.experiment)
    for measure in measures:
        table = measure_table(finished, measure)
        if table:
            parts.append(f"### {measure.title}\n\n{table}")
            noted = TABLE_NOTES.get((finished.experiment.name, measure.key))
            parts += [noted] if noted else []
            if measure is measures[0]:
                parts += _explanations(finished.experiment)
    parts.append("### Discovery\n\n" + discovery(finished))
    confused = confusion_words(finished)
    parts += [confused] if confused else []
    return "\n\n".join(parts + pictures(captions_of(finished)))


def captions_of(finished: Finished) -> list[tuple[str, str]]:
    """File names of an experiment's pictures, and what they show."""
    return image_captions(finished) if of_images(finished.experiment) else captions(finished)


def pictures(captioned: Sequence[tuple[str, str]]) -> list[str]:
    """Pictures with their captions below."""
    return [f"![{words}](images/{name})\n\n*{words}.*" for name, words in captioned]


def settings_line(finished: Finished) -> str:
    """How an experiment was run, on what, and when."""
    settings = finished.settings
    seeds = ", ".join(map(str, finished.seeds))
    # The file has the settings of one run: what an ablation sets is not that of all.
    varied = any(method.setting for method in finished.experiment.methods)
    views = f", {settings['n_views']} views, γ = {settings['range']:g}"
    line = (
        f"`lieaugmenter reproduce {finished.experiment.name}`: {seed_count(len(finished.seeds))} "
        f"({seeds}), {settings['epochs']} epochs, batches of {settings['batch_size']}, learning "
        f"rate {_rate_words(settings)}, {_network_words(finished)}{'' if varied else views}; "
        f"{_data_words(finished)}. {ran_on(finished)}."
    )
    if finished.quick:
        line = (
            "**Quick run: few samples and few epochs. Its numbers mean nothing and are not "
            f"compared.**\n\n{line}"
        )
    return line


def _rate_words(settings: Mapping[str, Any]) -> str:
    own = settings.get("own_lr")
    return f"{settings['lr']:g}" + (f" ({own:g} with own settings)" if own else "")


def _network_words(finished: Finished) -> str:
    name, widths = finished.experiment.name, finished.settings["hidden"]
    if name in _NETWORKS:
        return _NETWORKS[name]
    if of_images(finished.experiment):
        return f"width {widths[0]}"
    return f"hidden widths {' × '.join(map(str, widths))}"


def _data_words(finished: Finished) -> str:
    source = finished.settings["source"]
    if source != "generated":
        return f"data from `{source}`"
    # Images and molecules are never generated: their file was not named.
    usual = of_images(finished.experiment) or finished.experiment.name in MOLECULES
    return "data from the usual place" if usual else "data generated"


def _explanations(experiment: Experiment) -> list[str]:
    """A paragraph for each text, naming all rows that it is for."""
    told: dict[str, list[str]] = {}
    for row in rows_of(experiment):
        text = EXPLANATIONS.get((experiment.name, row))
        if text:
            told.setdefault(text, []).append(label(row))
    headed = {"; ".join(rows): text for text, rows in told.items()}
    return [f"*{_capital(rows)}.* {text}" for rows, text in headed.items()]


def _capital(words: str) -> str:
    """With a first capital, unless it is a symbol.

    >>> _capital("oracle"), _capital("p4 CNN")
    ('Oracle', 'p4 CNN')
    """
    return words[0].upper() + words[1:] if words[:2].isalpha() else words
