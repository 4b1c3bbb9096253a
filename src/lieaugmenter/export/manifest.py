"""The manifest: a symmetry as data, versioned, and everything that can be made of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, TypedDict, get_type_hints

import torch
from jaxtyping import Float
from torch import Tensor

from lieaugmenter.actions import Action
from lieaugmenter.actions.words import ACTIONS, make_action
from lieaugmenter.export.symbols import latex, sympy_matrices
from lieaugmenter.export.transform import RandomTransform
from lieaugmenter.nets.equivariant import OUTPUTS, EquivariantNetwork
from lieaugmenter.report.findings import Findings
from lieaugmenter.runs import (
    RunError,
    RunFolder,
    fits,
    in_short,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)

SCHEMA = "lieaugmenter.symmetry"
VERSION = 1
FORMS = ("json", "latex", "network", "sympy", "transform")
_TENSORS = ("generators", "exact")
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
# What the actions are called where they are given by name.
_NAMES = {
    "AffineAction": "affine",
    "FourVectorAction": "fourvector",
    "ImageAction": "image",
    "InvariantAction": "invariant",
    "VectorAction": "vector",
}
# What moves outputs may have another name: how a vector moves depends on the action beside it.
_OUTPUT_NAMES = _NAMES | {"DisplacementAction": "vector"}


@dataclass(frozen=True, eq=False)
class Manifest:
    """A symmetry that was found, as data.

    Attributes
    ----------
    generators
        As learned, (c, d, d), in the units of the data; c = 0 if nothing was found.
    exact
        The named algebra nearest to them, (k, d, d); None without a name.
    ranges
        The largest coefficient of each learned generator.
    action
        How elements move inputs: vector, points, affine, fourvector, image, or the name of an
        action of the user's. Affine and image generators are homogeneous: their last row is zero.
    output
        How they move outputs: invariant, same, vector (turned and stretched with the space, but
        not translated), or the name of an action of the user's.
    feature_names
        Of the rows and columns of a generator.
    in_shape, out_shape
        Of one input and of one output.
    algebra, description
        Name of the algebra and what acts where; None and empty without a name.
    scale
        The size of the inputs, by which they were divided for training.
    law
        Of the coefficients: uniform, normal, integer-grid or learnable.
    verdict
        What can be said about it, plain values.
    made
        Versions, time, seed, and a digest of the settings.

    Examples
    --------
    >>> from lieaugmenter.lie.catalogue import so
    >>> found = Manifest(
    ...     so(2), so(2), [2.0], "vector", "invariant", ["x", "y"], (2,), (1,), algebra="so(2)"
    ... )
    >>> found.export("sympy")
    [Matrix([
    [0, -1],
    [1,  0]])]
    >>> found.export("network")(torch.randn(5, 2)).shape
    torch.Size([5, 1])
    """

    generators: Float[Tensor, "c d d"]
    exact: Float[Tensor, "k d d"] | None
    ranges: list[float]
    action: str
    output: str
    feature_names: list[str]
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    algebra: str | None = None
    description: str = ""
    scale: float = 1.0
    law: str = "uniform"
    verdict: dict[str, Any] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # An action that was given as an object is known by its name, "VectorAction(dim=3)" say.
        action, output = _name(self.action, _NAMES), _name(self.output, _OUTPUT_NAMES)
        alike = output == action and output != self.output
        object.__setattr__(self, "action", action)
        object.__setattr__(self, "output", "same" if alike else output)
        self._check()

    def _check(self) -> None:
        d = self.generators.shape[-1]
        for name in _TENSORS:
            tensor = getattr(self, name)
            if tensor is None:
                continue
            if tensor.ndim != 3 or tensor.shape[1:] != (d, d):
                raise ValueError(f"{name} have shape {tuple(tensor.shape)}; expected (c, {d}, {d})")
            if not bool(tensor.isfinite().all()):
                raise ValueError(f"{name} hold non-finite values")
        if len(self.ranges) != len(self.generators):
            raise ValueError(f"{len(self.ranges)} ranges for {len(self.generators)} generators")
        if len(self.feature_names) != d:
            raise ValueError(f"{len(self.feature_names)} feature names for generators of size {d}")

    # -- forms --------------------------------------------------------------------------------

    def export(self, to: str, **options: Any) -> Any:
        """The symmetry in another form.

        Parameters
        ----------
        to
            ``"json"``: a dictionary of plain values (`to_json`). ``"latex"``: a table for a
            document (`to_latex`). ``"sympy"``: a list of matrices (`to_sympy`). ``"transform"``: a
            module that moves samples at random (`to_transform`). ``"network"``: an equivariant
            network to train (`to_network`).
        options
            Of the method that is named in brackets.
        """
        if to not in FORMS:
            raise ValueError(f"unknown export {to!r}; choose from {', '.join(FORMS)}")
        return getattr(self, f"to_{to}")(**options)

    def to_json(self) -> dict[str, Any]:
        """Plain values with the name and the version of their schema, tensors as nested lists."""
        content: dict[str, Any] = {"schema": SCHEMA, "version": VERSION}
        content["dtype"] = str(self.generators.dtype).removeprefix("torch.")
        content |= {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("in_shape", "out_shape"):
            content[name] = list(content[name])
        for name in _TENSORS:
            content[name] = None if content[name] is None else content[name].tolist()
        return content

    @classmethod
    def from_json(cls, content: Any, where: str = "this") -> Manifest:
        """The manifest that `to_json` wrote, or a ValueError that says what is wrong with it.

        Parameters
        ----------
        content
            From `to_json`.
        where
            What to call it in an error, such as its file.
        """
        if not isinstance(content, Mapping) or content.get("schema") != SCHEMA:
            raise ValueError(f"{where} is no manifest of a symmetry (schema {SCHEMA!r})")
        version = content.get("version")
        if version != VERSION:
            raise ValueError(
                f"{where} has version {in_short(version, 40)} of the schema; this version of "
                f"lieaugmenter reads version {VERSION}"
            )
        values = dict(content)
        missing = {item.name for item in fields(cls)} | {"dtype"}
        missing -= set(values)
        if missing:
            raise ValueError(f"{where} is incomplete: it has no {', '.join(sorted(missing))}")
        try:
            dtype = _DTYPES[values["dtype"]]
            d = len(values["feature_names"])
            for name in _TENSORS:
                if values[name] is not None:
                    tensor = torch.tensor(values[name], dtype=dtype)
                    # An empty list does not say how large its matrices would be.
                    values[name] = tensor if tensor.numel() else tensor.new_empty(0, d, d)
            for name in ("in_shape", "out_shape"):
                values[name] = tuple(values[name])
            kinds = get_type_hints(cls)
            for item in fields(cls):
                # Tensors are checked where they come together, with their shapes.
                value = values[item.name]
                if item.name not in _TENSORS and not fits(value, kinds[item.name]):
                    raise ValueError(f"{item.name} is {in_short(value)}")
            return cls(**{item.name: values[item.name] for item in fields(cls)})
        except (
            KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError
        ) as error:  # fmt: skip
            raise ValueError(f"{where} is damaged: {in_short(error)}") from None

    def to_latex(self, exact: bool | None = None, digits: int = 4) -> str:
        """A table to paste: generators, brackets, names of the features. Needs amsmath.

        Parameters
        ----------
        exact
            True for the exact algebra, False for what was learned; the exact one if there is one
            unless given.
        digits
            Of numbers that are not recognised as fractions or roots.
        """
        generators, is_exact = self._chosen(exact)
        outcome = self.verdict.get("outcome")
        title = "Generators" + (f" of {self.algebra}" if self.algebra else "")
        title += "" if is_exact or not len(generators) else ", as learned"
        title += f" (verdict: {outcome})" if outcome else ""
        return latex(generators, self.feature_names, title=title, exact=is_exact, digits=digits)

    def to_sympy(self, exact: bool | None = None) -> list[Any]:
        """SymPy matrices, one a generator, with fractions and roots where they are recognised.

        Parameters
        ----------
        exact
            As for `to_latex`.
        """
        generators, is_exact = self._chosen(exact)
        return sympy_matrices(generators, exact=is_exact)

    def to_transform(
        self, exact: bool | None = None, action: Action | None = None
    ) -> RandomTransform:
        """A module that moves every sample by a random element; nothing moves without generators.

        Parameters
        ----------
        exact
            As for `to_latex`; whole-number coefficients go with the learned generators only.
        action
            The action, where it is one of the user's own.
        """
        grid = self.law == "integer-grid"
        generators, is_exact = self._chosen(False if grid and exact is None else exact)
        # A basis of the exact algebra need not be near that of the learned one.
        ranges = [max(self.ranges)] * len(generators) if is_exact and self.ranges else self.ranges
        if action is None:
            action = self._action()
        return RandomTransform(
            action, generators, ranges, law=self.law, sample_ndim=len(self.in_shape)
        )

    def to_network(
        self,
        hidden: Sequence[int] = (16, 16, 16),
        exchangeable: bool | None = None,
    ) -> EquivariantNetwork:
        """A network to train that is equivariant under the exact algebra whatever its weights.

        Parameters
        ----------
        hidden
            Numbers of vectors, each with a scalar, in the hidden layers.
        exchangeable
            Whether the points of a sample are a set, whose order says nothing; so for
            ``action="points"`` unless given.
        """
        linear = ("affine", "fourvector", "points", "vector")
        if self.action not in linear or self.output not in OUTPUTS:
            raise ValueError(
                f"there is no equivariant network for action={self.action!r} with "
                f"output={self.output!r}: the action must be one of {', '.join(linear)}, and the "
                f"output {' or '.join(OUTPUTS)}. For all others use the transform, or a plain "
                f"network"
            )
        if not len(self.generators):
            raise ValueError(
                "no generators were found, and every network is equivariant under nothing: use a "
                "plain one, such as lieaugmenter.nets.MLP"
            )
        if self.exact is None:
            raise ValueError(
                "the generators have no named algebra to snap to, and few maps are equivariant "
                "under noise. Give nets.equivariant.EquivariantNetwork generators of your own, or "
                "a tolerance of their relative error"
            )
        set_of_points = self.action == "points" and len(self.in_shape) == 2
        return EquivariantNetwork(
            self.exact,
            self.in_shape,
            self.out_shape,
            output=self.output,
            affine=self.action == "affine",
            exchangeable=set_of_points if exchangeable is None else exchangeable,
            hidden=hidden,
            scale=self.scale,
        )

    def _chosen(self, exact: bool | None) -> tuple[Tensor, bool]:
        """The generators to show, and whether they are exact."""
        if exact and self.exact is None:
            raise ValueError("there is no exact algebra: the generators have no name")
        if exact is False or self.exact is None:
            return self.generators, False
        return self.exact, True

    def _action(self) -> Action:
        if self.action not in ACTIONS:
            raise ValueError(
                f"a manifest cannot hold {self.action}: give it again, export('transform', "
                f"action=…)"
            )
        return make_action(self.action, self.in_shape[-1])


def _name(action: str, names: Mapping[str, str]) -> str:
    kind = action.split("(")[0]
    return names.get(kind, kind)


class _Shapes(TypedDict):
    """Of a run's data."""

    x_shape: list[int]
    y_shape: list[int]


class _Settings(TypedDict):
    """Of a run's settings, those that a manifest tells."""

    output: str
    sampler: str


class HasManifest(Protocol):
    """What a fitted estimator has."""

    def manifest(self) -> Manifest:
        """What was found."""
        ...


def digest(settings: Mapping[str, Any]) -> str:
    """A hash of plain settings, the same in whatever order they come."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def made_by(settings: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """How a result was made: versions and time, seed, digest of the settings."""
    kept = ("lieaugmenter", "torch", "python", "time")
    versions = {name: environment.get(name) for name in kept}
    return versions | {"seed": settings.get("random_state"), "settings_sha256": digest(settings)}


def manifest_of_run(run: RunFolder) -> Manifest:
    """The manifest of a finished run.

    Parameters
    ----------
    run
        The folder of a run of an estimator or of the command line.
    """
    found, config = Findings.load(run), run.config()
    _, trained = read_tensors(run.path / "network.safetensors")
    try:
        shapes = config["data"]
        classes = trained["classes"]
        if not fits(shapes, _Shapes) or not fits(classes, int):
            raise ValueError("the shapes of the data are not told")
        if not fits(found.settings, _Settings) or not fits(trained["x_scale"], float):
            raise ValueError("the settings are damaged")
        return Manifest(
            generators=found.as_learned,
            exact=found.exact,
            ranges=found.ranges,
            action=found.action,
            output=found.settings["output"],
            feature_names=found.feature_names,
            in_shape=tuple(shapes["x_shape"][1:]),
            out_shape=(classes,) if classes else tuple(shapes["y_shape"][1:]) or (1,),
            algebra=found.verdict.group,
            description=(found.algebra or {}).get("description", ""),
            scale=trained["x_scale"],
            law=found.settings["sampler"],
            verdict=found.verdict.to_json(),
            made=made_by(found.settings, found.environment),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{run.path} does not say all that a manifest needs: {error}") from None


def save_manifest(found: Manifest | HasManifest | Mapping[str, Any], path: str | Path) -> Path:
    """Write a manifest: a .json file with everything, and its tensors as .safetensors beside it.

    Parameters
    ----------
    found
        A manifest, its dictionary, or a fitted estimator.
    path
        Of the .json file; the ending may be left out.

    Returns
    -------
    Path
        Of the .json file.
    """
    if isinstance(found, Mapping):
        manifest = Manifest.from_json(found)
    else:
        manifest = found if isinstance(found, Manifest) else found.manifest()
    words, numbers = _files(path)
    tensors = {name: getattr(manifest, name) for name in _TENSORS}
    known = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    write_tensors(numbers, known, {"schema": SCHEMA, "version": VERSION})
    write_json(words, manifest.to_json())
    return words


def load_manifest(path: str | Path) -> Manifest:
    """Read back what `save_manifest` wrote; nothing is unpickled.

    Parameters
    ----------
    path
        Of the .json file; the ending may be left out.
    """
    words, numbers = _files(path)
    for file in (words, numbers):
        if not file.is_file():
            raise FileNotFoundError(
                f"{file} is missing; a manifest is two files, {words.name} and {numbers.name}"
            )
    manifest = Manifest.from_json(read_json(words), str(words))
    tensors, _ = read_tensors(numbers)
    for name in _TENSORS:
        stated, found = getattr(manifest, name), tensors.get(name)
        same = found is None if stated is None else found is not None and stated.equal(found)
        if not same:
            raise ValueError(
                f"{words} and {numbers.name} do not belong together: their {name} differ"
            )
    return manifest


def _files(path: str | Path) -> tuple[Path, Path]:
    """The two files of a manifest. Not `with_suffix`: a name may have a dot of its own."""
    path = Path(path)
    stem = path.stem if path.suffix in (".json", ".safetensors") else path.name
    return path.with_name(f"{stem}.json"), path.with_name(f"{stem}.safetensors")
