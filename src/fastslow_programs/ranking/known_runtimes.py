"""Known runtimes of a program's own configurations: read them, and learn all others from them.

A compiler engineer who measured some configurations of a program has a CSV file with the columns ``id`` or
``config``, and ``runtime``. :func:`learn` joins it with knowledge from elsewhere: the predictions of trained
models, the columns of the ranker's table, and the choices::

    known = read_known("measured.csv", num_configs)
    found = learn(Configurations(choices, columns, members, prediction), known)
    found.mean  # (C,) lower = faster; the order is the ranking
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from fastslow.competition.runtimes import RUNTIME, are_runtimes
from fastslow.core.errors import DataError, counted, with_article
from fastslow.features.graph import Graph
from fastslow.rankers.table import tabulate
from fastslow_programs.program.csv_rows import read_rows
from fastslow_programs.ranking.choices import NamedChoice
from fastslow_programs.ranking.known_models import Configurations, Encoder, Inputs, Known, Stack

KNOWN_COLUMNS = ("config", "runtime")
_READ = (*KNOWN_COLUMNS, "id", "round")
_EXACT = 2**53  # float64 holds all smaller whole numbers
_ROUND = f"a whole number from 0 to {_EXACT - 1}"
_BLOCK = 500  # configurations of one covariance matrix
_NAMED = 5  # unknown columns that a message names
_LEVEL = 0.99  # of the interval of a ratio, as `fastslow measure` has it
_NEAR = 2 / 3  # of the choices that others change; known ones that change fewer are near the default
_COLUMNS = (
    "the columns id (of ranking.csv; or for a competition file config, the position from 0) and runtime "
    "(above 0)"
)
_FORM = f"Write a CSV file with {_COLUMNS}"
_MEASURED = (
    "Another program or another draw was measured: rank that one (of a function the .hlo.pb that `measure` "
    "wrote), with the same seed and configs"
)
_TABLE = f"Give a pandas.DataFrame with {_COLUMNS}, or the path of such a CSV file"


def read_known(
    path: str | Path, num_configs: int, ids: np.ndarray | None = None, of_file: bool = True
) -> pd.DataFrame:
    """Read measured runtimes.

    Args:
        path: CSV file with the columns ``id``, the identity of a configuration, or ``config``, its position,
            and ``runtime``, in any unit. Rows of the same configuration are repeated measurements. A column
            ``round`` may be there, as `fastslow measure` writes it: a whole number from 0, which tells a
            repeated measurement from a row that was copied.
        num_configs: Number of configurations of the program.
        ids: ``(C,)`` their identities, see :func:`fastslow_programs.program.configurations.identify`.
        of_file: Whether a file lists the configurations. The positions of drawn ones depend on the settings,
            so that these need ``id``.

    Returns:
        ``config`` int64, ``runtime`` float64 and, where it is given, ``round`` int64, in the order of the
        file, at least one row.

    Raises:
        DataError: The file is missing, no table, empty, lacks a column or has an unknown one, or a row is no
            measurement of a configuration, or names two; the message names the row.
    """
    path = Path(path)
    return check_known(pd.DataFrame(read_rows(path, _FORM)), num_configs, path, ids, of_file)


def check_known(
    known: pd.DataFrame,
    num_configs: int,
    source: object = "known",
    ids: np.ndarray | None = None,
    of_file: bool = True,
) -> pd.DataFrame:
    """Check measured runtimes that are in a table.

    Args:
        known: The columns that the file of :func:`read_known` has.
        num_configs: Number of configurations of the program.
        source: What a message names in place of a file.
        ids: As for :func:`read_known`.
        of_file: As for :func:`read_known`.

    Returns:
        ``config`` int64, ``runtime`` float64 and, where it is given, ``round`` int64, in the order of the
        table, at least one row.

    Raises:
        DataError: As for :func:`read_known`, the file aside.
    """
    form = _FORM if isinstance(source, Path) else _TABLE
    if not isinstance(known, pd.DataFrame):
        problem = f"is {with_article(type(known).__name__)}, a table of pandas is wanted"
        raise DataError(source, problem, form)
    if twice := sorted({str(name) for name in known.columns[known.columns.duplicated()]}):
        raise DataError(source, f"has the column {', '.join(twice)} twice", form)
    by_id = ids is not None and "id" in known.columns
    needed = ("id" if by_id else "config", "runtime")
    if missing := [name for name in needed if name not in known.columns]:
        raise DataError(source, f"has no column {' or '.join(missing)}", form)
    if unknown := [str(name) for name in known.columns if name not in _READ]:
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        problem = f"has the unknown column {', '.join(unknown[:_NAMED])}{more}"
        raise DataError(source, problem, form)
    if not of_file and not by_id:
        problem = "names configurations by config without id: another draw has other positions"
        raise DataError(source, problem, "Give the column id, as in ranking.csv and in what `measure` writes")
    if by_id:
        positions = _positions(known["id"], ids, source)
        if "config" in known.columns:
            _refuse_contradiction(known, ids, source)
        known = known.assign(config=positions)
    if not len(known):
        raise DataError(source, "holds no measurement", form)
    config, runtime = (_numbers(known[name]) for name in KNOWN_COLUMNS)
    number = _numbers(known["round"]) if "round" in known.columns else np.zeros(len(known))
    within = (config >= 0) & (config < num_configs) & (config == np.floor(config))
    for name, right, rule in (
        ("config", within, f"a whole number from 0 to {num_configs - 1}"),
        ("runtime", are_runtimes(runtime), RUNTIME),
        ("round", (number >= 0) & (number == np.floor(number)) & (number < _EXACT), _ROUND),
    ):
        if not right.all():
            row = int(right.argmin())
            problem = f"row {row + 1} has {name} {str(known[name].iloc[row]) or 'nothing'}, not {rule}"
            raise DataError(source, problem, form)
    result = pd.DataFrame({"config": config.astype(np.int64), "runtime": runtime})
    if "round" not in known.columns:
        return result
    result["round"] = number.astype(np.int64)
    copies = result.duplicated().to_numpy()
    if copies.any():
        row = int(copies.argmax())
        problem = f"row {row + 1} repeats the configuration, the round and the runtime of an earlier row"
        raise DataError(source, problem, "Leave out the copy: every measurement counts once")
    return result


def _numbers(column: pd.Series) -> np.ndarray:
    """Return a column as numbers, NaN for what is none: True, a date, or a whole number beyond float64.

    Texts are read as numbers, as in a CSV file.
    """
    values = pd.Series([*column], dtype=object)
    return pd.to_numeric(values.where(values.map(_is_number)), errors="coerce").to_numpy(np.float64)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | Decimal | str):
        return False
    return not isinstance(value, int) or abs(value) <= sys.float_info.max


def _refuse_contradiction(known: pd.DataFrame, ids: np.ndarray, source: object) -> None:
    """Raise :class:`DataError` for a row whose ``config`` is another configuration than its ``id``."""
    numbers = _numbers(known["config"]).tolist()
    for row, (config, identity) in enumerate(zip(numbers, known["id"], strict=True), 1):
        is_position = 0 <= config < len(ids) and config.is_integer()
        if not is_position or ids[int(config)] != identity:
            given = str(known["config"].iloc[row - 1]) or "nothing"
            problem = f"row {row} has config {given} and id {identity!s}, which are two configurations"
            raise DataError(
                source, problem, "Leave out the column config: id names a configuration in any draw"
            )


def _positions(given: pd.Series, ids: np.ndarray, source: object) -> list[int]:
    """Return the first position of each identity."""
    places = {identity: place for place, identity in reversed(list(enumerate(ids.tolist())))}
    for row, identity in enumerate(given, 1):
        if not isinstance(identity, str) or identity not in places:
            problem = f"row {row} has id {identity!s}, which is no configuration that is ranked here"
            raise DataError(source, problem, _MEASURED)
    return [places[identity] for identity in given]


def are_estimates(known_from: str) -> bool:
    """Return whether values are a compiler's estimates, which have no noise; see ``program/measured.py``.

    Args:
        known_from: Where the values are from, in words; empty where the user gave them.
    """
    return ", compiler " in known_from


def is_faster(known: pd.DataFrame, one: str, than: str) -> bool | None:
    """Return whether a configuration was measured to be faster than another one beyond noise.

    It is where Student's interval of the logarithm of their ratio is below 0. With rounds the ratio is taken
    in each round; without rounds all repeated rows tell the noise. The rounds of a table come from one
    loading; `fastslow measure` loads both configurations again for its verdict. The fastest of many is so
    partly by luck, so all comparisons share the level (Bonferroni).

    Args:
        known: ``id``, ``runtime`` and, where it is given, ``round``.
        one: Identity of the configuration.
        than: Identity of the other one.

    Returns:
        None where one of them was not measured, or where no repeated measurement tells the noise.
    """
    known = known.assign(log=np.log(known["runtime"]))
    by_config = known.groupby("id")["log"]
    count, mean = by_config.count(), by_config.mean()
    if not {one, than} <= {*count.index}:
        return None
    if "round" in known.columns:
        logs = known.pivot_table("log", "round", "id")
        ratios = (logs[one] - logs[than]).dropna()
        difference, error, freedom = ratios.mean(), ratios.sem(), len(ratios) - 1
    else:
        difference, freedom = mean[one] - mean[than], len(known) - len(count)
        squares = ((known["log"] - by_config.transform("mean")) ** 2).sum()
        error = np.sqrt(squares / max(freedom, 1) * (1 / count[one] + 1 / count[than]))
    if freedom < 1:
        return None
    tail = (1 - _LEVEL) / 2 / (len(count) - 1)
    return bool(difference - stdtrit(freedom, tail) * error < 0)


@dataclass(frozen=True)
class Learnt:
    """What is expected of all configurations of a program after some were measured.

    Args:
        mean: ``(C,)`` expected score, lower = faster; 0 the middle of all, standard deviation about 1.
        measurements: Number of the measurements.
        stack: The models.
        inputs: All configurations as the models read them.
        place: ``(C,)`` position of each configuration among the known ones, -1 for the others.
        changed: Mean number of choices in which the known and the other configurations differ from the
            default.
    """

    mean: np.ndarray
    measurements: int
    stack: Stack
    inputs: Inputs
    place: np.ndarray
    changed: tuple[float, float] = (0.0, 0.0)

    @property
    def are_neighbours(self) -> bool:
        """Whether the known ones are nearer to the default than the others, as a search has them."""
        known, others = self.changed
        return known < _NEAR * others

    @property
    def has_order(self) -> bool:
        """Whether the measurements support an order: known ones that are left out are predicted.

        It is True where there are too few to tell.
        """
        tau = self.stack.expected_tau
        return tau is None or tau > 0

    @property
    def knows_all(self) -> bool:
        """Whether every configuration was measured: no other one is left to predict."""
        return bool((self.place >= 0).all())

    @property
    def expected_tau(self) -> float | None:
        """Kendall's tau to expect on the others; None with too few known ones, or if these are neighbours."""
        return None if self.are_neighbours else self.stack.expected_tau

    def faster(self, than: int) -> np.ndarray | None:
        """Return the probability ``(C,)`` that each configuration is faster than one, by its position.

        Of two known ones their measurements decide. The size of errors is itself known from few measurements
        only, so it comes from Student's t (Gelman et al., "Bayesian Data Analysis", 3rd edition, 2013,
        section 3.2). It is None where no score is expected of the others, or no order.
        """
        if not (self.expected_tau or 0) > 0:
            return None
        variances = []
        for rows in np.array_split(np.arange(len(self.mean)), len(self.mean) // _BLOCK + 1):
            covariance = self.stack.covariance(self.inputs.take(np.r_[than, rows]))
            variances.append(covariance[0, 0] + covariance.diagonal()[1:] - 2 * covariance[0, 1:])
        deviations = np.sqrt(np.maximum(np.concatenate(variances), 1e-12))
        chance = stdtr(self.stack.degrees, (self.mean[than] - self.mean) / deviations)
        if self.place[than] >= 0:
            is_known = self.place >= 0
            chance[is_known] = self.stack.known.faster(self.place[than])[self.place[is_known]]
        return chance

    def words(self) -> str:
        """Return how many were known and which score to expect, as a sentence."""
        tau = self.stack.expected_tau
        score = "too few to tell the score to expect"
        if tau is not None:
            score = f"expected Kendall's tau on others, if they are measured as these: {tau:.2f}"
        if self.knows_all:
            score = "these are all"
        elif tau is not None and self.are_neighbours:
            known, others = self.changed
            score = (
                f"no score is expected of the others: they differ from the default in {others:.1f} choices "
                f"on average, the known ones in {known:.1f}"
            )
        if not self.has_order:
            score += "; the measurements support no order"
        of = counted(len(self.stack.left_out), "configuration")
        return f"known runtimes: {self.measurements}, of {of}; {score}"


def learn(configurations: Configurations, known: pd.DataFrame) -> Learnt:
    """Join measured runtimes with the predictions and columns of all configurations.

    Args:
        configurations: All C configurations of the program.
        known: ``config`` (position, repeats allowed) and ``runtime``, see :func:`read_known`; the order of
            its rows and the unit of runtimes do not change the result.

    Raises:
        DataError: A row of ``known`` is no measurement of a configuration, or there is none.
    """
    known = check_known(known, len(configurations))
    scores = Known(known["config"].to_numpy(), known["runtime"].to_numpy())
    inputs = Encoder(configurations)(configurations)
    stack = Stack(inputs.take(scores.config), scores)
    place = np.full(len(configurations), -1)
    place[scores.config] = np.arange(len(scores))
    return Learnt(stack.mean(inputs), len(known), stack, inputs, place)


def configurations_of(
    graph: Graph,
    kind: str,
    config_columns: list[str],
    choices: Sequence[NamedChoice],
    members: Mapping[str, np.ndarray],
    prediction: np.ndarray,
) -> Configurations:
    """Return the C distinct configurations of a graph.

    A configuration of the file is ``graph.config_row[config]`` among them, and ``graph.expand(found.mean)``
    is the ranking of the file.

    Args:
        graph: The graph.
        kind: ``layout`` or ``tile``.
        config_columns: Names of its ``config_feat`` columns.
        choices: The choices of its file, see :func:`fastslow_programs.ranking.choices.name_choices`.
        members: ``(C_file,)`` predictions of each model, lower = predicted faster.
        prediction: ``(C_file,)`` of the run, lower = predicted faster.
    """
    first = graph.config_ids
    table, _ = tabulate(graph, kind, config_columns)
    codes = np.array([choice.values[first] for choice in choices], np.int64).reshape(-1, len(first)).T
    of_models = np.array([values[first] for values in members.values()]).reshape(-1, len(first)).T
    return Configurations(codes, table, of_models, prediction[first])
