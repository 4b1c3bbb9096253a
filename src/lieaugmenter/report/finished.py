"""An experiment with its results, and where these came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lieaugmenter.experiments.results import Statistic, of_method, read_results, statistic
from lieaugmenter.experiments.spec import Experiment, Method
from lieaugmenter.report.measures import SECONDS
from lieaugmenter.report.words import PRECISIONS, label, listed


def _unchanged(folder: Path, experiment: Experiment) -> list[dict[str, Any]]:
    """Runs of the experiment that an ablation varies, under the names they would have in it."""
    path = folder / f"{experiment.base}.json"
    if not experiment.base or not path.is_file():
        return []
    varied = {(method.kind, method.setting[0]) for method in experiment.methods if method.setting}
    return [
        {**result, "method": Method(kind, f"{name}-{experiment.unchanged[name]:g}").name}
        for kind, name in sorted(varied)
        for result in of_method(read_results(path)["results"], kind)
    ]


@dataclass(frozen=True)
class Finished:
    """An experiment and the file of its results; trainings that were stopped are none."""

    experiment: Experiment
    settings: Mapping[str, Any]
    results: Sequence[Mapping[str, Any]]
    unfinished: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def read(cls, folder: Path, experiment: Experiment) -> Finished | None:
        """The results of an experiment, or None where there are none."""
        path = folder / f"{experiment.name}.json"
        if not path.is_file():
            return None
        content = read_results(path)
        results = content["results"] + _unchanged(folder, experiment)
        return cls(experiment, content["settings"], results, content.get("unfinished", []))

    @property
    def quick(self) -> bool:
        """Whether it only shows that the commands work."""
        return bool(self.settings["quick"])

    @property
    def seeds(self) -> list[int]:
        """Of all methods together."""
        return sorted({result["seed"] for result in self.results})

    def of(self, method: Method) -> list[Mapping[str, Any]]:
        """The results of a method, by seed."""
        return sorted(of_method(self.results, method.name), key=lambda result: result["seed"])

    def statistic(self, method: Method | None, measure: str) -> Statistic | None:
        """Over the seeds that did not diverge; no seconds of a CPU beside those of a GPU."""
        if method is None or (measure == SECONDS.key and method.name in self.timed_elsewhere):
            return None
        return statistic([r for r in self.of(method) if not has_diverged(r)], measure)

    @property
    def timed_elsewhere(self) -> set[str]:
        """Methods with a run on a CPU, where other runs had a GPU: their seconds do not compare."""
        devices = {result.get("device") for result in self.results}
        if devices <= {"cpu"}:
            return set()
        return {result["method"] for result in self.results if result.get("device") == "cpu"}

    def diverged(self, method: Method) -> int:
        """How many seeds did."""
        return sum(has_diverged(result) for result in self.of(method))


def has_diverged(result: Mapping[str, Any]) -> bool:
    """Whether training did, or ended in a network whose test error is not finite."""
    # A test error that is not finite is kept as null.
    return "diverged" in result or any(
        key in result and result[key] is None for key in ("mse", "mae", "accuracy")
    )


def ran_on(finished: Finished) -> str:
    """Devices, versions and days of the runs; which methods, where not all ran alike."""
    places: dict[str, list[Mapping[str, Any]]] = {}
    for result in finished.results:
        places.setdefault(_place(result), []).append(result)
    if not places:
        return "no runs"
    most, *others = sorted(places, key=lambda place: -len(places[place]))
    said = [f"{most}, {_days(places[most])}"]
    for place in others:
        names = {result["method"] for result in places[place]}
        methods = [method for method in finished.experiment.methods if method.name in names]
        rows = listed(list(dict.fromkeys(label(method.row) for method in methods)))
        said.append(f"{rows}: {place}, {_days(places[place])}")
    on_a_cpu = [result for result in finished.results if result.get("device") == "cpu"]
    if finished.experiment.precision == "bf16" and on_a_cpu:
        # Older runs did not say: a CPU had float32 then.
        chosen = {r.get("environment", {}).get("precision", "float32") for r in on_a_cpu}
        there = " or ".join(PRECISIONS[name] for name in sorted(chosen))
        on_a_gpu = len(on_a_cpu) < len(finished.results)
        elsewhere = "bfloat16 on a GPU, in " if on_a_gpu else ""
        said.append(f"networks run in {elsewhere}{there} on a CPU")
    return "; ".join(said)


def _place(result: Mapping[str, Any]) -> str:
    ran = result.get("environment", {})
    versions = (f"{name} {ran.get(name, 'unknown')}" for name in ("torch", "lieaugmenter"))
    return ", ".join((_device(result), *versions))


def _device(result: Mapping[str, Any]) -> str:
    """What one run ran on: a machine with a GPU may have left it alone."""
    ran, device = result.get("environment", {}), str(result.get("device", "unknown device"))
    if device != "cpu":
        return str(ran.get("device", device))
    threads = ran.get("threads", 1)
    return f"CPU ({threads} threads)" if threads > 1 else "CPU"


def _days(results: Iterable[Mapping[str, Any]]) -> str:
    times = (result.get("environment", {}).get("time", "date unknown") for result in results)
    days = sorted({time[:10] if time[:1].isdigit() else time for time in times})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def devices_of(finished: Finished) -> str:
    """What the runs ran on, in words."""
    return " and ".join(sorted({_device(result) for result in finished.results}))


def logit_count(finished: Finished) -> int | None:
    """How many classes the task of an experiment on images has, where a result tells."""
    return next((len(r["confusion"]) for r in finished.results if r.get("confusion")), None)
