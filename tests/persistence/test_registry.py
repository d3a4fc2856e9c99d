"""The names of classes in files: each of one class, each class of one name, and none left out."""

import importlib
import pkgutil
from inspect import isabstract

import pytest

import streamboost
from streamboost.bases import Base
from streamboost.descents import Descent
from streamboost.errors import SnapshotError
from streamboost.evaluation.metric_base import Metric
from streamboost.losses import Loss
from streamboost.persistence import format_1
from streamboost.persistence.registry import NAMES, PLACES, find_class, name_of
from streamboost.stacks.base import Stack

OPTIONAL = ("torch", "river")


def is_optional(name):
    return any(word in PLACES[name][0] for word in OPTIONAL)


def test_a_name_finds_a_class_that_has_that_name():
    names = [name for name in PLACES if not is_optional(name)]
    assert [name_of(find_class(name)) for name in names] == names


def test_no_class_has_two_names():
    assert len(NAMES) == len(PLACES)


@pytest.mark.parametrize("kind", [Base, Descent, Loss, Metric, Stack])
def test_whatever_a_model_can_be_made_of_has_a_name(kind):
    for module in pkgutil.walk_packages(streamboost.__path__, "streamboost."):
        if not any(word in module.name for word in (*OPTIONAL, "__main__", "ray", "kafka", "redis")):
            importlib.import_module(module.name)
    found, waiting = set(), [kind]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if cls.__module__.startswith("streamboost.") and not isabstract(cls) and not cls.__name__.startswith("_"):
            found.add(cls)
    assert found
    assert {cls.__name__ for cls in found if name_of(cls) is None} <= {"MeanMetric", "SignLoss"}


def test_a_class_that_merely_looks_like_one_of_ours_has_no_name():
    assert name_of(type("Squared", (), {"__module__": "elsewhere"})) is None
    with pytest.raises(SnapshotError, match="no class that this streamboost saves"):
        find_class("os.system")


def test_old_names_lead_to_names_of_today():
    assert set(format_1.CLASSES.values()) <= set(PLACES)
    assert set(format_1.ATTRIBUTES) <= set(PLACES)
