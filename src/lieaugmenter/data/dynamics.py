"""Two bodies on near-circular orbits around their common centre."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.data.checkup import non_finite_message
from lieaugmenter.data.files import DataError, read_arrays
from lieaugmenter.data.task import Task
from lieaugmenter.lie.catalogue import diagonal, so

# (q1x, q1y, p1x, p1y, q2x, q2y, p2x, p2y)
FEATURES = ("q1x", "q1y", "p1x", "p1y", "q2x", "q2y", "p2x", "p2y")
TIME_STEP = 20 / 49
_SAMPLES = 20
# Relative spread of the speed about that of a circle.
_SPEED_NOISE = 7e-4
_REFERENCE_ARRAYS = ("coords", "test_coords")
# Where our features stand among the reference file's columns.
_REFERENCE_COLUMNS = [0, 2, 4, 6, 1, 3, 5, 7]
_HOW_TO_GET = (
    "The reference orbits are data/hnn/2body-orbits-dataset.pkl of github.com/Rose-STL-Lab/LieGAN, "
    "a pickle: save its arrays with np.savez(path, coords=…, test_coords=…). two_body() makes "
    "orbits of the same kind"
)


@dataclass(frozen=True, eq=False, kw_only=True)
class TwoBody(Task):
    """Two-body orbits cut into windows: inputs and the states one window later.

    x and y are (n, 8) for one time step in and out, (n, steps, 8) for more, in the order of
    `FEATURES`. The generator turns both bodies' positions and momenta together. There is no
    validation set.
    """

    generator: Float[Tensor, "1 8 8"]


def true_generator() -> Float[Tensor, "1 8 8"]:
    """Four plane rotations at the same rate, norm √8."""
    return diagonal(so(2), 4)


def two_body(n_train: int = 814, n_test: int = 790, *, steps: int = 1, seed: int = 0) -> TwoBody:
    """Generate the two-body task.

    Masses and the gravitational constant are 1. Training orbits start with body 1 in the lower
    half plane, test orbits in the upper: the rotation must carry what was learned over.

    Parameters
    ----------
    n_train, n_test
        Numbers of trajectories, each of 20 states at intervals of 20/49.
    steps
        Time steps in an input and in an output.
    seed
        Of the initial conditions.

    Examples
    --------
    >>> task = two_body(4, 4)
    >>> task.x_train.shape, task.generator.shape
    (torch.Size([72, 8]), torch.Size([1, 8, 8]))
    """
    rng = np.random.default_rng(seed)
    train = orbits(rng.uniform(-math.pi, 0.0, n_train), rng)
    test = orbits(rng.uniform(0.0, math.pi, n_test), rng)
    return _two_body(train, test, steps)


def two_body_from_file(path: str | Path, *, steps: int = 1) -> TwoBody:
    """Read the two-body task from the reference orbits.

    Its training orbits, too, start with body 1 in the lower half plane and its test orbits in the
    upper. With the file that the paper uses, one step in and out gives 14,652 training and 14,220
    test samples, three steps 11,396 and 11,060.

    Parameters
    ----------
    path
        An .npz with arrays `coords` and `test_coords`, (trajectories, states, 8), the columns in
        the order q1x q2x q1y q2y p1x p2x p1y p2y; they are put in the order of `FEATURES`.
    steps
        Time steps in an input and in an output.

    Raises
    ------
    DataError
        For anything that is not such a file.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file. {_HOW_TO_GET}")
    arrays = read_arrays(path, _REFERENCE_ARRAYS)
    for name, array in arrays.items():
        if array.dtype.kind != "f":
            raise DataError(f"{path}: {name} has dtype {array.dtype}; floats are needed")
        if array.ndim != 3 or array.shape[-1] != len(FEATURES) or not array.size:
            raise DataError(
                f"{path}: {name} has shape {array.shape}; expected (trajectories, states, 8)"
            )
        message = non_finite_message(array, what=name)
        if message:
            raise DataError(f"{path}: {message}")
    train, test = (arrays[name][..., _REFERENCE_COLUMNS] for name in _REFERENCE_ARRAYS)
    return _two_body(train, test, steps)


def out_of_distribution(task: TwoBody) -> TwoBody:
    """The same windows, split by where body 1 is at the first step of the input.

    Training and test windows are pooled; those with body 1 top left or bottom right (q1x q1y < 0)
    are for training, the others for testing. The paper names the quadrants and no more.

    Examples
    --------
    >>> task = out_of_distribution(two_body(20, 20))
    >>> bool((task.x_train[:, 0] * task.x_train[:, 1]).max() < 0)
    True
    """
    x = torch.cat([task.x_train, task.x_test])
    y = torch.cat([task.y_train, task.y_test])
    start = x.flatten(1)
    train = start[:, 0] * start[:, 1] < 0
    return replace(
        task,
        name=f"{task.name}-ood",
        x_train=x[train],
        y_train=y[train],
        x_test=x[~train],
        y_test=y[~train],
    )


def _two_body(train: np.ndarray, test: np.ndarray, steps: int) -> TwoBody:
    (x_train, y_train), (x_test, y_test) = windows(train, steps), windows(test, steps)
    return TwoBody(
        name="two-body" if steps == 1 else f"two-body-{steps}",
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        generator=true_generator(),
        output="same",
        feature_names=FEATURES,
    )


def orbits(angles: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Trajectories (n, 20, 8) from initial angles of body 1, exact Kepler motion.

    The relative motion of two unit masses at distance 2r is Kepler's with mu = 2; the speed of a
    body on a circle of radius r is 1 / (2 √r). A speed (1 + e) times that makes a slight ellipse,
    which is solved by Kepler's equation.
    """
    n = len(angles)
    # Density proportional to r on [1.5, 3].
    radius = np.sqrt(rng.uniform(1.5**2, 3.0**2, n))
    factor = 1.0 + _SPEED_NOISE * rng.standard_normal(n)
    # One body about the centre obeys q'' = -q / (4 |q|³): Kepler with mu = 1/4.
    mu = 0.25
    speed = factor * np.sqrt(mu / radius)
    energy = speed**2 / 2 - mu / radius
    axis = -mu / (2 * energy)
    # The start is an apsis: the closest point when faster than the circle, else the farthest.
    eccentricity = np.abs(1 - radius / axis)
    at_closest = factor >= 1.0
    rate = np.sqrt(mu / axis**3)
    times = TIME_STEP * np.arange(_SAMPLES)
    mean_anomaly = rate[:, None] * times + np.where(at_closest, 0.0, math.pi)[:, None]
    anomaly = mean_anomaly.copy()
    e = eccentricity[:, None]
    for _ in range(20):
        anomaly -= (anomaly - e * np.sin(anomaly) - mean_anomaly) / (1 - e * np.cos(anomaly))
    a, root = axis[:, None], np.sqrt(1 - e**2)
    position = np.stack([a * (np.cos(anomaly) - e), a * root * np.sin(anomaly)], axis=-1)
    swing = rate[:, None] * a / (1 - e * np.cos(anomaly))
    velocity = np.stack([-swing * np.sin(anomaly), swing * root * np.cos(anomaly)], axis=-1)
    turn = angles - np.where(at_closest, 0.0, math.pi)
    cosine, sine = np.cos(turn), np.sin(turn)
    rotation = np.stack([np.stack([cosine, -sine], -1), np.stack([sine, cosine], -1)], -2)
    position = np.einsum("nij,ntj->nti", rotation, position)
    velocity = np.einsum("nij,ntj->nti", rotation, velocity)
    return np.concatenate([position, velocity, -position, -velocity], axis=-1)


def windows(trajectories: np.ndarray, steps: int) -> tuple[Tensor, Tensor]:
    """Inputs of `steps` states and the `steps` states after them, as float32.

    The last possible window of a trajectory is left out, as in the reference set: 18 of one step
    from 20 states.
    """
    count = trajectories.shape[1] - 2 * steps
    if steps < 1 or count < 1:
        raise ValueError(
            f"steps={steps}: windows of that length do not fit {trajectories.shape[1]} states"
        )
    x = np.stack([trajectories[:, i : i + steps] for i in range(count)], axis=1)
    y = np.stack([trajectories[:, i + steps : i + 2 * steps] for i in range(count)], axis=1)

    def flat(array: np.ndarray) -> Tensor:
        joined = array.reshape(-1, steps, array.shape[-1])
        return torch.from_numpy(joined.squeeze(1) if steps == 1 else joined).float()

    return flat(x), flat(y)
