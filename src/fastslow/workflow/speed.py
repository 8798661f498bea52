"""The speed of trainings on this machine, from their first steps on a few programs."""

import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastslow.competition.catalog import PREDICTED_SPLITS, TEST, TRAIN, VALID
from fastslow.core.errors import SettingsError
from fastslow.core.isolated import Workers
from fastslow.core.progress import progress, ticking
from fastslow.runs.features_folder import Features
from fastslow.steps.network_settings import TrainSettings
from fastslow.steps.ranker_settings import RankerSettings
from fastslow.workflow.steps import Step

SEGMENTS: dict[str, Any] = {"segment_training": "gst+e", "segment_nodes": 1000}
"""Settings of a network that learns from segments; ``benchmarks/tables/gst.md`` has the time of a step."""
_SAMPLED = {"one_in": 20, "least": 6}  # programs of a split whose steps are measured
_TREES = 2, 22
_WORTH = 2  # times as fast as whole graphs: then segments are considered


@dataclass(frozen=True)
class Speed:
    """Seconds that a training takes here.

    Args:
        once: Preparing its programs, and the predictions at the end.
        each: An epoch with its share of the evaluations, or a tree with its share of the predictions.
    """

    once: float
    each: float


def measure(
    steps: Iterable[Step], together: int, environment: Mapping[str, str], seconds: float
) -> dict[str, dict[bool, Speed]]:
    """Measure the speed of trainings here, as many at a time as will be trained at a time.

    Args:
        steps: Trainings of different sections, whose features are built.
        together: Number of trainings at a time.
        environment: Environment variables of each.
        seconds: Time limit of one measurement.

    Returns:
        By section the speed on whole graphs (False) and, of a network that is much faster so, on segments
        (True). What did not fit into the time or the memory is missing.
    """
    trials = {(step.section, cut): (variant,) for step in steps for cut, variant in _variants(step.settings)}
    with Workers(processes=together, start=(_adopt, dict(environment))) as workers:
        timed = workers.each(_speed, trials, seconds=seconds)
        options = {"desc": "measuring the speed", "unit": "model", "disable": not sys.stderr.isatty()}
        bar = progress(timed, total=len(trials), **options)
        with ticking(bar):
            speeds = {key: speed for key, speed in bar if isinstance(speed, Speed)}
    measured = {}
    for section in dict.fromkeys(section for section, _ in trials):
        variants = {cut: speeds[section, cut] for cut in (False, True) if (section, cut) in speeds}
        if len(variants) > 1 and variants[True].each * _WORTH > variants[False].each:
            del variants[True]
        if variants:
            measured[section] = variants
    return measured


def _adopt(environment: dict[str, str]) -> None:
    os.environ.update(environment)


def _variants(settings: TrainSettings | RankerSettings) -> Iterator[tuple[bool, Any]]:
    """Yield the settings and, of a network that may learn from segments, those with segments (True)."""
    yield False, settings
    if isinstance(settings, TrainSettings) and settings.kind == "layout":
        largest = max(source.index["nodes"].max() for source in settings.sources())
        if settings.segment_training == "none" and largest > _WORTH * SEGMENTS["segment_nodes"]:
            try:
                yield True, settings.replace(**SEGMENTS)
            except SettingsError:
                return  # its architecture sees whole graphs


def _speed(settings: TrainSettings | RankerSettings) -> Speed:
    if isinstance(settings, RankerSettings):
        return _ranker_speed(settings)
    from fastslow.networks.hardware.devices import ran_out_of_memory

    try:
        return _network_speed(settings)
    except RuntimeError as error:  # torch's, also where memory ran out
        if ran_out_of_memory(error):
            raise MemoryError from error
        raise


def _network_speed(settings: TrainSettings) -> Speed:
    from fastslow.networks.predict.dataset import predict
    from fastslow.networks.training.train import Training
    from fastslow.steps.network import graphs_of

    settings = settings.replace(processes=1)
    whole = settings.sources()
    parts = [source.sample(**_SAMPLED) for source in whole]
    training = Training(settings, graphs_of(settings, parts))
    lap = _Laps()
    training.run_epoch()
    first = lap()
    training.run_epoch()
    epoch = lap()
    training.validation.evaluate(1, 0.0)
    evaluation = lap() * _times(whole, parts, VALID, "nodes")
    predicting = 0.0
    for split, often in ((VALID, 2), (TEST, 1)):  # on valid with the best and with the averaged weights
        for slug in training.dataset.sources:
            predict(training.network, training.dataset, slug, split)
        predicting += often * lap() * _times(whole, parts, split, "nodes * configs")
    learned = _times(whole, parts, TRAIN, "nodes")
    once = max(0.0, first - epoch) * learned + predicting
    return Speed(once, epoch * learned + evaluation / settings.evaluate_every)


def _ranker_speed(settings: RankerSettings) -> Speed:
    import lightgbm  # noqa: F401 the default library, which the first fit would import while it is timed

    from fastslow.rankers.fit import fit, read_training

    whole = settings.sources()
    parts = {slug: source.sample(**_SAMPLED) for slug, source in whole.items()}
    sources = list(whole.values()), list(parts.values())
    lap = _Laps()
    tables = read_training(parts, settings)
    read = lap()
    fitting = []
    predicting = []
    for trees in _TREES:
        fitted = fit(tables, settings.replace(num_iterations=trees), settings.num_threads)
        fitting.append(lap())
        for split in PREDICTED_SPLITS:
            for part in parts.values():
                fitted.predict_split(part, split)
            predicting.append(lap() * _times(*sources, split, "configs + merged"))
    learned = _times(*sources, TRAIN, "configs", settings.configs_per_graph)
    start, each = _line(fitting)
    beside, more = _line([sum(predicting[:2]), sum(predicting[2:])])
    return Speed((read + start) * learned + beside, each * learned + more)


def _line(seconds: Sequence[float]) -> tuple[float, float]:
    """Return start and slope of the line through the seconds with few and with many trees."""
    each = (seconds[1] - seconds[0]) / (_TREES[1] - _TREES[0])
    if each <= 0:  # so little time that chance decides
        return 0.0, max(seconds) / _TREES[1]
    return max(0.0, seconds[0] - _TREES[0] * each), each


class _Laps:
    """A stopwatch: a call returns the seconds since the call before."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self) -> float:
        before = self._began
        self._began = time.monotonic()
        return self._began - before


def _times(
    whole: Sequence[Features], parts: Sequence[Features], split: str, size: str, most: float = math.inf
) -> float:
    """Return how many times as large a split is as a part of it, by a size of each graph of at most ``most``.

    The size is an expression of columns of the features' index.
    """
    return float(_total(whole, split, size, most) / _total(parts, split, size, most))


def _total(sources: Sequence[Features], split: str, size: str, most: float) -> float:
    rows = (source.index[source.index["split"] == split] for source in sources)
    return sum(of_split.eval(size).clip(upper=most).sum() for of_split in rows)
