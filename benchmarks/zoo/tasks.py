"""The tasks of the zoo, by name.

tests/test_zoo.py computes the algebra of every one of them and compares it with `ZooTask.truth`.
"""

from __future__ import annotations

from functools import lru_cache

from benchmarks.zoo.linear import linear_tasks
from benchmarks.zoo.spatial import spatial_tasks
from benchmarks.zoo.task import KINDS as KINDS
from benchmarks.zoo.task import NULL_KINDS as NULL_KINDS
from benchmarks.zoo.task import ZooTask as ZooTask
from benchmarks.zoo.unsymmetric import unsymmetric_tasks


@lru_cache(maxsize=1)
def tasks() -> dict[str, ZooTask]:
    """All tasks by name, those with a continuous symmetry first."""
    found = [*linear_tasks(), *spatial_tasks(), *unsymmetric_tasks()]
    named = {task.name: task for task in found}
    if len(named) < len(found):
        raise ValueError("two tasks of the zoo have the same name")
    return named
