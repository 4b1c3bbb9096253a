"""Whether a task has a continuous symmetry, and what spans it, before anything is imposed.

Two teams of predictors are trained on different halves of the training data, without augmentation.
What both have learned is the task; what each got wrong is its own. The directions along which both
agree that nothing changes are the symmetry (`analysis.dimension`); the held-out samples, which
neither team has seen, judge them.

Where that leaves it open, because the teams have not learned the task well enough, the generators
that it may be are imposed on both teams, and they learn on: a symmetry that holds teaches them
much more from as many samples (`analysis.verdict.Trial`).
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lieaugmenter.actions import ImageAction
from lieaugmenter.actions.base import Action, Batch, batch_size, map_tensors
from lieaugmenter.analysis.bootstrap import bounds, resample
from lieaugmenter.analysis.compare import principal_cosines
from lieaugmenter.analysis.components import (
    LEAST_SAMPLES,
    PRESENT,
    Candidate,
    Components,
    components,
)
from lieaugmenter.analysis.conjugation import USUAL_NOISE
from lieaugmenter.analysis.coverage import coverage
from lieaugmenter.analysis.dimension import (
    DEFECT_BOUND,
    POSSIBLE_BOUND,
    Bench,
    Dimensions,
    visible_defect,
)
from lieaugmenter.analysis.identify import LARGEST_NAMED, Identity, identify
from lieaugmenter.analysis.polarization import entries, polarize
from lieaugmenter.analysis.verdict import CERTIFIED_QUALITY, Trial, Verdict, decide, quality_of
from lieaugmenter.learning.augmenter import LieAugmenter
from lieaugmenter.learning.devices import pick_device
from lieaugmenter.learning.engine import fit
from lieaugmenter.learning.objective import Objective
from lieaugmenter.learning.streams import Reservoir, Stream
from lieaugmenter.lie.brackets import orthonormal
from lieaugmenter.nets import MLP, GaussianProcess, ProductMLP
from lieaugmenter.runs import RunFolder

# Samples on which generators are ordered, and on which they are judged.
SEARCHED = 2000
_JUDGED = 2000
# Samples on which finite elements are tested, which compares all pairs of them.
_COMPARED = 500
# Up to so many samples a Gaussian process knows more than networks do.
_FEW = 500
TEAM_WIDTHS = (64, 64, 64)
# Matrices smaller than this, relative to what they are part of, are rounding.
_LEAST_SHARE = 1e-4
# How often generators are imposed on the teams, with how many views, up to which coefficient.
_TRIALS = 2
_TRIAL_VIEWS = 2
_TRIAL_RANGE = 0.5
# Squared entries below such shares of the largest are left out where a span has no name with them.
_SHARES = (0.03, 0.1, 0.3)
# Coefficients at which it is asked how far a symmetry holds, up to the range.
_STEPS_OF_RANGE = 8


def team_network(in_shape: Sequence[int], out_shape: Sequence[int], classes: int) -> nn.Module:
    """The network of a team where none is asked for: smooth, because its derivatives matter.

    Parameters
    ----------
    in_shape, out_shape
        Shapes of one sample and of one output.
    classes
        Number of classes, 0 for numbers.
    """
    if classes:
        return MLP(in_shape, out_shape, hidden=TEAM_WIDTHS, smooth=True)
    return ProductMLP(in_shape, out_shape, hidden=TEAM_WIDTHS)


class Team(nn.Module):
    """The mean prediction of networks that were trained on the same samples.

    Parameters
    ----------
    members
        The networks.
    classes
        Number of classes, 0 for numbers. Of classes it is the mean probability: cross-entropy
        leaves a number common to all logits open, probabilities do not.
    """

    def __init__(self, members: Sequence[nn.Module], classes: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.classes = classes

    def forward(self, x: Batch) -> Tensor:
        outputs = [member(x) for member in self.members]
        if self.classes:
            outputs = [output.softmax(-1) for output in outputs]
        return torch.stack(outputs).mean(0)

    def singly(self) -> list[Team]:
        """Every member as a team of its own."""
        return [Team([member], self.classes) for member in self.members]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What two teams say about a task.

    Attributes
    ----------
    dimensions
        The table over dimensions, with its generators in the units of training.
    agreement
        For each row of the table the smallest principal cosine between the spans that each team
        gives by itself.
    quality
        R² of the mean of both teams on held-out data, or their accuracy above the majority
        class's, scaled to [0, 1].
    first, second
        The teams.
    bench
        Judges other spans by the same teams and samples.
    searched
        The samples on which generators were ordered.
    trial, before
        Where generators were imposed on these teams, and helped: how much, and the evidence before.
    """

    dimensions: Dimensions
    agreement: Sequence[float]
    quality: float
    first: Team
    second: Team
    bench: Bench
    searched: Batch
    trial: Trial | None = None
    before: Evidence | None = None

    def by_single_networks(self, span: Float[Tensor, "c d d"]) -> list[float]:
        """The defect of a span by each pair of networks, one of each team: the noise of training.

        Members of a team learn from the same samples, and differ by where their training began.
        Empty where each team has one member: that pair has been asked.
        """
        bench = self.bench
        pairs = list(itertools.product(self.first.singly(), self.second.singly()))
        if len(pairs) == 1:
            return []
        benches = (
            Bench(*pair, bench.samples, action=bench.action, output=bench.output) for pair in pairs
        )
        return [one.judge(span).defect for one in benches]

    def holds_until(self, generator: Float[Tensor, "d d"], largest: float) -> float | None:
        """How far along exp(wL) the symmetry surely holds on held-out data, at most to `largest`.

        None where not even the smallest step can be judged: samples are then moved to where there
        are none.
        """
        grid = [largest * step / _STEPS_OF_RANGE for step in range(1, _STEPS_OF_RANGE + 1)]
        generator = generator.detach().double().cpu()
        steps = [Candidate(f"{w:g}", torch.linalg.matrix_exp(w * generator)) for w in grid]
        tested = self.components(candidates=steps)
        present = {c.candidate.name for c in tested.with_outcome(PRESENT)}
        found: float | None = None
        for w, step in zip(grid, steps, strict=True):
            if step.name not in present:
                break
            found = w
        return found

    def named(self, dimension: int) -> tuple[Float[Tensor, "c d d"], Identity | None]:
        """The best generators of a dimension, each of norm √D, and what they are.

        They are snapped to the exact algebra where it is not worse on held-out samples.
        """
        found, action = self.dimensions.generators[:dimension], self.bench.action
        identity = _identity(found, action)
        if identity is not None and identity.exact is not None:
            exact = identity.exact.to(found)
            before, after = (abs(self.bench.judge(span).defect) for span in (found, exact))
            if after <= max(before, DEFECT_BOUND / 2):
                return _normalised(exact, action), identity
        return _normalised(found, action), identity

    def simplified(self) -> Evidence:
        """The same with a table over large entries alone, where what is counted has no name.

        Where features are far from zero, or small, some entries hardly move the samples. They are
        known badly, however well a predictor was taught: they spoil the generators that there are,
        and some appear to be symmetries that are none.
        """
        count, action = self.dimensions.count(), self.bench.action
        found = self.dimensions.generators[:count]
        identity = _identity(found, action) if count and not self.dimensions.leaving else None
        if identity is None or identity.named:
            return self
        weights = orthonormal(found).square().sum(0)
        for share in _SHARES:
            candidates = entries((weights > share * weights.max()).float()).to(found)
            table = self.bench.dimensions(self.searched, candidates=candidates)
            table = replace(table, visible=self.dimensions.visible, idle=self.dimensions.idle)
            left = table.count()
            if 2 * left <= count:
                return self
            if table.rows[left - 1].closure <= USUAL_NOISE:
                agreement = _agreement(self.bench, self.searched, candidates, len(table.rows))
                return replace(self, dimensions=table, agreement=agreement)
        return self

    @torch.no_grad()
    def losses(self, y: Tensor) -> Float[Tensor, " n"]:
        """Of each sample on which the teams are judged: the mean of what both lose."""
        return (self._losses(self.first, y) + self._losses(self.second, y)) / 2

    def _losses(self, team: Team, y: Tensor) -> Float[Tensor, " n"]:
        predictions = torch.cat([team(piece) for piece in self.bench.pieces]).double().cpu()
        y = y[: len(predictions)].cpu()
        if team.classes:
            return -predictions.gather(1, y[:, None]).squeeze(1).clamp_min(1e-12).log()
        return (predictions.reshape(len(y), -1) - y.reshape(len(y), -1)).square().mean(1)

    def components(self, **options: Any) -> Components:
        """Discrete transformations, judged by the same teams; see `analysis.components`."""
        some = map_tensors(lambda t: t[:_COMPARED], self.bench.samples)
        action, output = self.bench.action, self.bench.output
        return components(self.first, self.second, some, action=action, output=output, **options)


@dataclass(frozen=True, eq=False)
class Discovery:
    """An answer: which generators, what they are, and how sure that is.

    Attributes
    ----------
    span
        (c, d, d), each of norm √D: the exact algebra where it has a name and holds as well as what
        was found. Empty where nothing is certified.
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
    """

    span: Float[Tensor, "c d d"]
    identity: Identity | None
    verdict: Verdict
    components: Components | None
    evidence: Evidence
    largest: float

    def reach(self) -> float | None:
        """The range to train with: as far as every generator surely holds; None without any.

        Where not even the smallest step can be judged, that step.
        """
        smallest = self.largest / _STEPS_OF_RANGE
        held = [smallest if until is None else until for until in self.verdict.holds_until]
        return min(held, default=None)


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
    # Teams on which it was imposed say nothing about its defect, nor about how far it holds.
    unimposed = evidence.before or evidence
    best = table.generators[: max(1, verdict.dimension)]
    verdict = verdict.among(unimposed.by_single_networks(best))
    if verdict.outcome != "certified":
        none = table.generators[:0]
        return Discovery(none, None, verdict, None, evidence, largest)
    span, identity = evidence.named(verdict.dimension)
    row = unimposed.bench.judge(span)
    verdict = replace(verdict, defect=row.defect, upper=row.upper)
    if identity is not None:
        verdict = verdict.naming(identity)
    if samples < LEAST_SAMPLES:
        return Discovery(span, identity, verdict, None, evidence, largest)
    components = evidence.components(generators=span, identity=verdict.group)
    verdict = replace(
        verdict,
        holds_until=[unimposed.holds_until(generator, largest) for generator in span],
        components=components.group,
    )
    return Discovery(span, identity, verdict, components, evidence, largest)


def _identity(generators: Float[Tensor, "c d d"], action: Action) -> Identity | None:
    """What generators are; None where they are too large, or act on parts, to be named."""
    if action.dim > LARGEST_NAMED or action.rows not in (action.dim, action.dim - 1):
        return None
    return identify(generators.cpu(), rows=action.rows, space_dim=action.space_dim)


def _normalised(generators: Float[Tensor, "c d d"], action: Action) -> Float[Tensor, "c d d"]:
    """Each of norm √D, as learned ones are."""
    norms = generators.flatten(1).norm(dim=1)[:, None, None]
    return generators * (math.sqrt(action.space_dim) / norms)


def gather(
    make_network: Callable[[], nn.Module],
    train: tuple[Batch, Tensor] | Stream,
    held_out: tuple[Batch, Tensor],
    *,
    action: Action,
    output: Action,
    candidates: Float[Tensor, "n d d"] | None = None,
    most: int | None = None,
    classes: int = 0,
    members: int = 2,
    epochs: int = 200,
    most_steps: int = 6000,
    batch_size: int = 64,
    lr: float = 5e-3,
    device: str | torch.device = "auto",
    seed: int = 0,
    progress: bool = False,
    run: RunFolder | None = None,
    resume: bool = False,
) -> Evidence:
    """Train two teams on the halves of the training data, and ask them for symmetries.

    Parameters
    ----------
    make_network
        Makes an untrained network; called under a seed of its own for each member. Smooth networks
        have better derivatives.
    train, held_out
        Inputs and targets, scaled as the networks want them. Those to train on may be a stream; of
        a long one the teams see only as many samples, drawn at random, as the steps take.
    action, output
        How generators act.
    candidates, most
        As of `dimensions`.
    classes
        Number of classes, 0 for numbers.
    members
        Networks in a team.
    epochs, most_steps, batch_size, lr, device, seed, progress
        Of the training; `epochs` is cut where it would take more steps, and half of it is enough
        for labels, and where generators are tried out.
    run, resume
        A folder in which each network has its checkpoints, and whether to continue from them.

    Examples
    --------
    >>> from lieaugmenter.actions import InvariantAction, VectorAction
    >>> from lieaugmenter.nets import MLP
    >>> x = torch.randn(1200, 2, generator=torch.Generator().manual_seed(0))
    >>> y = x.norm(dim=1, keepdim=True)
    >>> found = gather(
    ...     lambda: MLP((2,), (1,), hidden=(32, 32), smooth=True),
    ...     (x[:1000], y[:1000]), (x[1000:], y[1000:]),
    ...     action=VectorAction(2), output=InvariantAction(), members=1, epochs=60,
    ... )
    >>> found.dimensions.count()
    1
    """
    halves = _halves(train, most_steps * batch_size, seed)
    steps = -(-_count(halves[0]) // batch_size)
    epochs = max(1, min(epochs, -(-most_steps // steps)))
    half_as_many = -(-epochs // 2)
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "lr": lr,
        "device": device,
        "resume": resume,
    }
    searched = _searched(train, seed)

    def taught(
        part: str,
        network: Callable[[int, int], nn.Module],
        imposed: Float[Tensor, "c d d"] | None,
        epochs: int,
    ) -> Evidence:
        teams = [
            Team(
                [
                    _member(
                        network(side, i),
                        None if imposed is None else _imposing(imposed, action, output),
                        half,
                        seed=seed + members * side + i,
                        epochs=epochs,
                        progress=f"{part}, team {side + 1}, network {i + 1}" if progress else False,
                        run=None if run is None else run.part(f"{part}-{side + 1}-{i + 1}"),
                        **options,
                    )
                    for i in range(members)
                ],
                classes,
            ).eval()
            for side, half in enumerate(halves)
        ]
        return weigh(
            teams[0], teams[1], searched, held_out, action=action, output=output,
            candidates=candidates, most=most, device=device, seed=seed,
        )  # fmt: skip

    def fresh(side: int, i: int) -> nn.Module:
        return _fresh(make_network, seed + members * side + i)

    def try_out(part: str, imposed: Float[Tensor, "c d d"], latest: Evidence) -> Evidence:
        def learned(side: int, i: int) -> nn.Module:
            team = (latest.first, latest.second)[side]
            return copy.deepcopy(team.members[i]).requires_grad_(True)

        # They go on from what they have learned.
        return taught(part, learned, imposed, half_as_many)

    # Labels are learned by heart before long, with derivatives that mean nothing.
    plain = taught("plain", fresh, None, half_as_many if classes else epochs)
    return _tried_out(plain, try_out, held_out[1], labels=bool(classes)).simplified()


def known(
    make_network: Callable[[], nn.Module],
    data: tuple[Batch, Tensor],
    dimension: int,
    *,
    action: Action,
    output: Action,
    candidates: Float[Tensor, "n d d"] | None = None,
    classes: int = 0,
    members: int = 8,
    epochs: int = 60,
    most_steps: int = 6000,
    batch_size: int = 64,
    lr: float = 3e-3,
    device: str | torch.device = "auto",
    seed: int = 0,
    progress: bool = False,
    run: RunFolder | None = None,
    resume: bool = False,
) -> Float[Tensor, "c d d"]:
    """The likeliest generators where it is known how many there are, from few or noisy samples too.

    With nothing left to decide nothing is held back: all networks learn from all samples, briefly,
    and what they have in common is asked (`analysis.polarization`). From 500 samples or fewer,
    unless they are images, a Gaussian process learns in their place. It says nothing about whether
    there is a symmetry: `gather` and `discover` do.

    Parameters
    ----------
    make_network
        Makes an untrained network, where there are many samples; called under a seed of its own
        for each member.
    data
        Inputs and targets, scaled as the networks want them.
    dimension
        How many generators there are.
    action, output, candidates, classes
        As of `gather`.
    members
        How many networks.
    epochs, most_steps, batch_size, lr, device, seed, progress
        Of the training; `epochs` is cut where it would take more steps, and no more samples are
        looked at than the steps take.
    run, resume
        As of `gather`.

    Returns
    -------
    Tensor
        (c, d, d), each of norm √D; the exact algebra where it has a name.

    Examples
    --------
    >>> from lieaugmenter.actions import InvariantAction, VectorAction
    >>> from lieaugmenter.nets import MLP
    >>> from lieaugmenter.analysis.compare import principal_cosines
    >>> from lieaugmenter.lie.catalogue import so
    >>> x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> y = x.square().sum(dim=1, keepdim=True)
    >>> found = known(
    ...     lambda: MLP((2,), (1,), hidden=(32, 32), smooth=True), (x, y), 1,
    ...     action=VectorAction(2), output=InvariantAction(), members=4, device="cpu",
    ... )
    >>> bool(principal_cosines(found, so(2)).min() > 0.95)
    True
    """
    if not 1 <= dimension <= action.dim * action.rows:
        raise ValueError(
            f"dimension={dimension}: there are between 1 and {action.dim * action.rows} generators"
        )
    x, y = data = _some(data, most_steps * batch_size, seed)
    epochs = max(1, min(epochs, -(-most_steps // -(-len(y) // batch_size))))
    few = len(y) <= _FEW and isinstance(x, Tensor) and not isinstance(action, ImageAction)

    def team() -> Team:
        networks = [
            _member(
                _fresh(make_network, seed + i),
                None,
                data,
                seed=seed + i,
                epochs=epochs,
                batch_size=batch_size,
                lr=lr,
                device=device,
                progress=f"network {i + 1} of {members}" if progress else False,
                run=None if run is None else run.part(f"network-{i + 1}"),
                resume=resume,
            )
            for i in range(members)
        ]
        return Team(networks, classes).eval()

    where = pick_device(device)
    # A derivative wants an axis for the numbers of a target, as networks have it.
    targets = y if classes or y.ndim > 1 else y.unsqueeze(1)
    predictor = GaussianProcess(x, targets, classes).to(where) if few else team()
    inputs = _sent(x, SEARCHED, where)
    found = likeliest(
        predictor, inputs, dimension, action=action, output=output, candidates=candidates
    )
    identity = _identity(found, action)
    exact = None if identity is None else identity.exact
    return _normalised(found if exact is None else exact.to(found), action)


def likeliest(
    predictor: Callable[[Batch], Tensor],
    x: Batch,
    dimension: int,
    *,
    action: Action,
    output: Action,
    candidates: Float[Tensor, "n d d"] | None = None,
) -> Float[Tensor, "c d d"]:
    """The generators along which a predictor changes least, those that lead off the data last.

    Parameters
    ----------
    predictor
        A trained one, differentiable, in evaluation mode.
    x
        Samples, on the device of the predictor.
    dimension
        How many; fewer are returned where no more move the samples.
    action, output, candidates
        As of `gather`.

    Examples
    --------
    >>> from lieaugmenter.actions import InvariantAction, VectorAction
    >>> x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    >>> turn = likeliest(
    ...     lambda x: x.norm(dim=1, keepdim=True), x, 1,
    ...     action=VectorAction(2), output=InvariantAction(),
    ... )
    >>> bool((turn[0] + turn[0].T).abs().max() < 1e-5)
    True
    """
    candidates = entries(action.mask) if candidates is None else candidates
    covered, _, _ = _on_the_data(x, candidates, action)

    def best(among: Float[Tensor, "n d d"], count: int) -> Float[Tensor, "c d d"]:
        return polarize(predictor, x, action=action, output=output, candidates=among).span(count)

    found = best(covered, dimension)
    others = _beside(candidates, covered)
    if len(found) == dimension or not len(others):
        return found
    return torch.cat([found, best(others, dimension - len(found))])


def _beside(
    candidates: Float[Tensor, "n d d"], others: Float[Tensor, "m d d"]
) -> Float[Tensor, "k d d"]:
    """An orthonormal basis of what the candidates span beside others."""
    axes, rows = orthonormal(others).flatten(1), candidates.detach().double().cpu().flatten(1)
    _, sizes, directions = torch.linalg.svd(rows - rows @ axes.T @ axes, full_matrices=False)
    left = directions[sizes > _LEAST_SHARE * rows.norm()]
    return left.unflatten(1, candidates.shape[1:]).to(candidates)


def _tried_out(
    evidence: Evidence,
    try_out: Callable[[str, Tensor, Evidence], Evidence],
    y: Tensor,
    *,
    labels: bool,
) -> Evidence:
    """The evidence, or that of teams on which more generators were imposed, if these help."""
    table, least = evidence.dimensions, CERTIFIED_QUALITY["labels" if labels else "numbers"]
    certified = table.count() if evidence.quality >= least else 0
    proposed, tried = table.count(POSSIBLE_BOUND), evidence
    for number in range(_TRIALS):
        if proposed <= certified:
            break
        span, _ = tried.named(proposed)
        tried = try_out(f"trial-{number + 1}", span, tried)
        loss, upper = _share_of_loss(tried, evidence, y)
        trial = Trial(evidence.bench.judge(span), loss, upper)
        _, identity = tried.named(max(1, tried.dimensions.count()))
        named = identity is not None and identity.named
        if trial.passed(tried.dimensions, tried.quality, named=named, labels=labels):
            return replace(tried, trial=trial, before=evidence)
        # The wrong ones among them can be told apart now: what is left may still help.
        proposed = min(proposed - 1, tried.dimensions.count())
    return evidence


def _imposing(generators: Float[Tensor, "c d d"], action: Action, output: Action) -> LieAugmenter:
    return LieAugmenter(
        action,
        output=output,
        n_views=_TRIAL_VIEWS,
        range=min(_TRIAL_RANGE, action.usual_range),
        warmup_steps=0,
        objective=Objective().losses_only(),
        basis=generators.float().cpu(),
    )


def _share_of_loss(after: Evidence, before: Evidence, y: Tensor) -> tuple[float, float]:
    """The held-out loss of teams as a share of that of others, and its 95 % upper bound."""
    now, then = (evidence.losses(y) for evidence in (after, before))
    weights = resample(len(now), 0)
    share = (weights @ now) / (weights @ then).clamp_min(1e-30)
    return float(now.mean() / then.mean().clamp_min(1e-30)), float(bounds(share)[1])


def weigh(
    first: Team,
    second: Team,
    search: Batch,
    held_out: tuple[Batch, Tensor],
    *,
    action: Action,
    output: Action,
    candidates: Float[Tensor, "n d d"] | None = None,
    most: int | None = None,
    device: str | torch.device = "auto",
    seed: int = 0,
) -> Evidence:
    """What two trained teams say; the parameters are those of `gather`."""
    where = pick_device(device)
    search = _sent(search, SEARCHED, where)
    judge, y = _sent(held_out[0], _JUDGED, where), held_out[1][:_JUDGED]
    bench = Bench(first, second, judge, action=action, output=output, seed=seed)
    candidates, equations, leaving = _on_the_data(search, candidates, action)
    found = bench.dimensions(search, candidates=candidates, most=most)
    found = replace(found, equations=equations, leaving=leaving)
    agreement = _agreement(bench, search, candidates, len(found.rows))
    with torch.no_grad():
        quality = quality_of(((first(judge) + second(judge)) / 2).cpu(), y)
    if not first.classes:
        found = replace(found, visible=visible_defect(quality))
    return Evidence(found, agreement, quality, first, second, bench, search)


def _on_the_data(
    x: Batch, candidates: Float[Tensor, "n d d"] | None, action: Action
) -> tuple[Float[Tensor, "n d d"], int, int]:
    """The candidates that do not lead off the data, how many equations these fulfil, and how many
    directions break one.
    """
    candidates = entries(action.mask) if candidates is None else candidates
    covered = coverage(x, action=action, candidates=candidates)
    if not len(covered.generators):
        # A few samples may nearly fulfil equations by chance, which nothing keeps.
        return candidates, 0, 0
    kept = torch.cat([covered.generators, covered.idle])
    return kept, covered.equations, covered.n_leaving


def _agreement(
    bench: Bench, search: Batch, candidates: Float[Tensor, "n d d"], most: int
) -> list[float]:
    """The smallest principal cosine between what each team gives by itself, of each dimension."""
    alone = [
        polarize(
            team, search, action=bench.action, output=bench.output, candidates=candidates,
            chunk=bench.chunk,
        )
        for team in bench.models
    ]  # fmt: skip
    return [
        float(principal_cosines(*(one.span(k) for one in alone)).min()) for k in range(1, most + 1)
    ]


def _fresh(make_network: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make_network()


def _member(
    network: nn.Module,
    augmenter: LieAugmenter | None,
    data: tuple[Batch, Tensor] | Stream,
    **options: Any,
) -> nn.Module:
    fit(network, augmenter, data, **options)
    return network.requires_grad_(False)


def _halves(
    train: tuple[Batch, Tensor] | Stream, most: int, seed: int
) -> list[tuple[Batch, Tensor]] | list[Stream]:
    """Two disjoint random parts of the data; of a stream each with about `most` samples at most."""
    if not isinstance(train, Stream):
        x, y = train
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
        middle = math.ceil(len(y) / 2)
        return [(_at(x, half), y[half]) for half in (order[:middle], order[middle:])]
    largest = np.uint64(min(1.0, 2 * most / train.count) * (2**63 - 1))

    def of(side: int) -> Stream:
        return train.where(
            lambda keys: (keys & np.uint64(1) == side) & (keys >> np.uint64(1) <= largest), seed
        )

    return [of(0), of(1)]


def _some(data: tuple[Batch, Tensor], most: int, seed: int) -> tuple[Batch, Tensor]:
    """The data, or as many of them drawn at random."""
    x, y = data
    if len(y) <= most:
        return data
    rows = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))[:most]
    return _at(x, rows), y[rows]


def _searched(train: tuple[Batch, Tensor] | Stream, seed: int) -> Batch:
    """Inputs on which generators are ordered."""
    if not isinstance(train, Stream):
        return train[0]
    reservoir = Reservoir(SEARCHED, seed=seed)
    for x, y in train.pieces():
        reservoir.add(x, y)
    return reservoir.settle()[0]


def _count(data: tuple[Batch, Tensor] | Stream) -> int:
    return data.count if isinstance(data, Stream) else len(data[1])


def _at(x: Batch, rows: Tensor) -> Batch:
    return map_tensors(lambda t: t[rows], x)


def _sent(x: Batch, most: int, device: torch.device) -> Batch:
    n = min(most, batch_size(x))
    return map_tensors(lambda t: t[:n].to(device), x)
