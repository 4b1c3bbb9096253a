"""Reading a user's own model for an audit. Nothing is unpickled, which could run any code."""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, cast

import torch
from torch import Tensor, nn

from lieaugmenter.actions.base import Batch
from lieaugmenter.nets import CNN, MLP, Standardized
from lieaugmenter.runs import RunError, RunFolder, fits, in_short, read_tensors

_FORMATS = (
    "a TorchScript file (torch.jit.trace(model, x).save('model.pt')), a run folder, or "
    "file.py:name, where name is a module or function in code of yours"
)


class ModelError(ValueError):
    """A model that cannot be used, with a message for users."""


def load_model(source: str) -> Callable[[Batch], Tensor]:
    """The model that a word of the command line means.

    Parameters
    ----------
    source
        A TorchScript file; a run folder, of which the network is taken as it predicts directly, in
        the units of the data and single precision, and log-probabilities of a classifier; or
        ``file.py:name`` or ``package.module:name``, which runs that code.

    Raises
    ------
    ModelError
        For anything else. Pickled modules are refused, and so are .pt2 files, which torch reads by
        unpickling: load them in code of your own, and give that. Also when the model of a run is
        called on samples that are not such as it was fitted on.
    RunError
        For a run folder that is damaged or not finished.
    """
    path = Path(source)
    if path.is_dir():
        return _of_run(path)
    place, colon, name = source.rpartition(":")
    if colon and not path.exists():
        return _of_code(place, name)
    if not path.is_file():
        raise ModelError(f"{source}: no such file; a model is {_FORMATS}")
    if path.suffix == ".pt2":
        raise ModelError(
            f"{source}: torch.export.load unpickles, which could run any code. Load it in a file "
            f"of your own, model = torch.export.load('{path.name}').module(), and give that as "
            f"file.py:model"
        )
    return _of_torchscript(path)


def _of_torchscript(path: Path) -> nn.Module:
    try:
        with warnings.catch_warnings():
            # Its makers want torch.export instead, which is read by unpickling.
            warnings.simplefilter("ignore", DeprecationWarning)
            return torch.jit.load(path, map_location="cpu").eval()
    except (RuntimeError, ValueError, LookupError, MemoryError) as error:
        raise ModelError(
            f"{path}: not a TorchScript file. State dictionaries and pickled modules hold no "
            f"model, or could run any code. A model is {_FORMATS}"
        ) from error


def _of_code(place: str, name: str) -> Callable[[Batch], Tensor]:
    try:
        module = _module_of_file(Path(place)) if place.endswith(".py") else _module_named(place)
    except ModelError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise ModelError(f"{place} cannot be run: {type(error).__name__}: {error}") from error
    found: Any = getattr(module, name, None)
    if found is None:
        raise ModelError(f"{place} has no {name!r}")
    kind = "class" if isinstance(found, type) else type(found).__name__
    if kind == "class" or not callable(found):
        raise ModelError(
            f"{place}:{name} is of type {kind}; a trained module or a function of a batch is needed"
        )
    return cast(Callable[[Batch], Tensor], found)


def _module_of_file(path: Path) -> Any:
    if not path.is_file():
        raise ModelError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # there is a loader for .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # So that the file finds those beside it, as it does when it is run.
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def _module_named(name: str) -> Any:
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise ModelError(f"{name}: no such file, and no name of a Python module")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModelError(f"no Python module {error.name!r}, looked for in {name}") from error


class _Parameters(TypedDict):
    """Of a run's settings, what says which network it has."""

    network: Any
    action: str
    hidden: list[int]


class _Data(TypedDict):
    x_shape: list[int]
    y_shape: list[int]


class _Scales(TypedDict):
    x_scale: float
    y_scale: Any
    y_shift: Any
    classes: int


def _of_run(path: Path) -> Callable[[Batch], Tensor]:
    trained = network_of_run(path)
    network, x_scale = trained.network, trained.x_scale

    def predict(x: Batch) -> Tensor:
        _refuse_other_samples(path, x, trained.sample_shape)
        values = network(x.float() / x_scale)
        if trained.classes:
            return values.log_softmax(-1)
        return values * trained.y_scale + trained.y_shift

    return predict


def _refuse_other_samples(path: Path, x: Any, shape: tuple[int, ...]) -> None:
    if isinstance(x, Tensor) and tuple(x.shape[1:]) == shape and not x.is_complex():
        return
    found = f"a {type(x).__name__}"
    if isinstance(x, Tensor):
        found = f"{x.dtype} of shape {tuple(x.shape)}"
    wanted = ", ".join(["N", *map(str, shape)])
    raise ModelError(
        f"{path} was fitted on samples of shape {shape}, and takes a tensor ({wanted}) of real "
        f"numbers; found {found}. An array becomes a tensor by torch.from_numpy(x)"
    )


@dataclass(frozen=True)
class TrainedNetwork:
    """The network of a run folder, and the scales that it was trained in.

    Attributes
    ----------
    network
        In evaluation mode.
    x_scale, y_scale, y_shift, classes
        As of `learning.predictor.Predictor`.
    parameters, sample_shape
        What the estimator was told, and the shape of one sample.
    rest
        What else was kept with the weights.
    """

    network: nn.Module
    x_scale: float
    y_scale: Tensor
    y_shift: Tensor
    classes: int
    parameters: dict[str, Any]
    sample_shape: tuple[int, ...]
    rest: dict[str, Any]


def network_of_run(path: Path) -> TrainedNetwork:
    """Build the network of a finished run again, with its weights.

    Raises
    ------
    RunError
        If it is none or not finished, or has a network of the user's own.
    """
    run = RunFolder.open(path)
    # What is only without its verdict can predict.
    if not (path / "network.safetensors").exists():
        run.check_finished()
    weights, scales = read_tensors(path / "network.safetensors")
    config = run.config()
    parameters, data = config.get("parameters"), config.get("data")
    if not fits(parameters, _Parameters) or not fits(data, _Data) or not fits(scales, _Scales):
        raise RunError(f"{path} is no run of an estimator, and does not say how to use its network")
    assert isinstance(parameters, dict)  # that is what fits() says
    assert isinstance(data, dict)
    try:
        # Without memory of its own: what the settings say may be larger than any machine.
        with torch.device("meta"):
            network = _network_of(path, parameters, data, scales)
        floats = {name: weight.float() for name, weight in weights.items()}
        network.load_state_dict(floats, assign=True)
        scale, shift = (torch.tensor(scales[name]).float() for name in ("y_scale", "y_shift"))
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"{path}: the weights do not fit the network ({in_short(error)})") from None
    return TrainedNetwork(
        network.eval(),
        scales["x_scale"],
        scale,
        shift,
        scales["classes"],
        parameters,
        tuple(data["x_shape"][1:]),
        scales,
    )


def _network_of(
    path: Path, parameters: dict[str, Any], data: dict[str, Any], scales: dict[str, Any]
) -> nn.Module:
    kind = parameters.get("network")
    if not isinstance(kind, str) or kind not in ("auto", "cnn", "mlp"):
        raise RunError(
            f"{path}: its network is one of your own ({in_short(kind, 60)}); build it and load "
            f"network.safetensors in a file of yours, and give that as file.py:name"
        )
    in_shape, out_shape = tuple(data["x_shape"][1:]), tuple(data["y_shape"][1:]) or (1,)
    if min(in_shape, default=0) < 1 or min(*out_shape, *parameters["hidden"]) < 1:
        raise RunError(f"{path}: its network would have layers without width")
    out_shape = (scales["classes"],) if scales["classes"] else out_shape
    if kind == "cnn" or (kind == "auto" and parameters.get("action") == "image"):
        return CNN(in_shape, math.prod(out_shape))
    network = MLP(in_shape, out_shape, hidden=tuple(parameters["hidden"]))
    if len(in_shape) != 1:
        return network
    # Means and deviations of the columns are among the weights that are read.
    return Standardized(network, torch.zeros(in_shape), torch.ones(in_shape))
