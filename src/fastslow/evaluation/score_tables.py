"""The scores of every model as tables to read."""

import pandas as pd

from fastslow.competition.catalog import COLLECTIONS, PREDICTED_SPLITS, TEST, VALID
from fastslow.core.figures import MODEL_WORDS
from fastslow.core.settings import resolve
from fastslow.core.tables import table_text, wrapped

_PREVIEWED = 5  # rows of a CSV, and configurations of a row
_SCOPES = {  # collections that a mean is taken over; a model may be of layout alone
    "mean of layouts": [c.name for c in COLLECTIONS if c.kind == "layout"],
    "mean of five": [c.name for c in COLLECTIONS],
}

PARTS = ("nearest third", "middle third", "farthest third")
"""Parts of a collection's graphs, by distance to the nearest train graph."""
DISTANCES = (
    "The ensemble's score by distance to the nearest train graph (graphs; smallest to largest distance)"
)


def pool_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Average over seeds: one row per collection and model.

    Args:
        table: As returned by :func:`fastslow.evaluation.scores.score_table`.

    Returns:
        ``collection``, ``model``, ``seeds`` (count) and ``weight`` (sum; NaN for a baseline). Per split
        ``<split>`` (mean over seeds), ``<split>_spread`` (maximum minus minimum of them) and
        ``<split>_by_seed`` (all of them). Over the graphs of all seeds ``<split>_min`` and ``<split>_max``
        and, of tile, ``<split>_top1`` (mean over seeds).
    """
    columns = {"seeds": ("run", "size"), "weight": ("weight", lambda weights: weights.sum(min_count=1))}
    for split in _scored_splits(table):
        columns[split] = (split, "mean")
        columns[f"{split}_spread"] = (split, lambda values: values.max() - values.min())
        columns[f"{split}_by_seed"] = (split, tuple)
        columns[f"{split}_min"] = (f"{split}_min", "min")
        columns[f"{split}_max"] = (f"{split}_max", "max")
        if f"{split}_top1" in table:
            columns[f"{split}_top1"] = (f"{split}_top1", "mean")
    return table.groupby(["collection", "model"], sort=False).agg(**columns).reset_index()


def _scored_splits(table: pd.DataFrame) -> list[str]:
    return [split for split in PREDICTED_SPLITS if split in table]


def readable_table(table: pd.DataFrame) -> pd.DataFrame:
    """Pool seeds and put the scores into words, with the means over collections below.

    Args:
        table: As returned by :func:`fastslow.evaluation.scores.score_table`.

    Returns:
        Strings: ``collection``, ``model`` in words, ``seeds``, ``weight`` and each split as
        ``mean ± half the range over seeds [minimum, maximum over graphs]``, for tile with the top 1.
    """
    pooled = pool_seeds(table)
    splits = _scored_splits(pooled)
    pooled["model"] = pooled["model"].replace(MODEL_WORDS)
    shown = pooled[["collection", "model"]].assign(
        seeds=pooled["seeds"].astype(str), weight=_text(pooled["weight"], "{:.2f}")
    )
    for s in splits:
        half = (pooled[f"{s}_spread"] / 2).map(" ± {:.3f}".format).where(pooled["seeds"] > 1, "")
        ends = [pooled[f"{s}_{end}"].map("{:.2f}".format) for end in ("min", "max")]
        shown[s] = pooled[s].map("{:.3f}".format) + half + " [" + ends[0] + ", " + ends[1] + "]"
        if f"{s}_top1" in pooled:
            shown[s] += _text(pooled[f"{s}_top1"], ", top 1 {:.3f}")
    means = []
    for scope, names in _SCOPES.items():
        for model, rows in pooled[pooled["collection"].isin(names)].groupby("model", sort=False):
            if len(rows) == len(names):
                seeds = " to ".join(map(str, sorted({rows["seeds"].min(), rows["seeds"].max()})))
                facts = {"collection": scope, "model": model, "seeds": seeds}
                means.append({**facts, "weight": "", **{s: f"{rows[s].mean():.3f}" for s in splits}})
    return pd.concat([shown, pd.DataFrame(means)], ignore_index=True)


def _text(values: pd.Series, form: str) -> pd.Series:
    """Format numbers; one that is not known becomes an empty text."""
    return values.map(form.format).where(values.notna(), "")


def overview(table: pd.DataFrame, split: str = "") -> pd.DataFrame:
    """Return the scores of ``scores.score_table`` as texts with a row per model.

    Args:
        table: The scores.
        split: The split; empty for test, or valid where test is not known.

    Returns:
        A column for each collection and mean; the index, the models with the ensemble last, has the name of
        the split.
    """
    split = split or (TEST if TEST in table else VALID)
    shown = readable_table(table)
    scope = shown["collection"].str.removeprefix("layout:")
    score = shown[split].str.replace(", top 1.*", "", regex=True)
    wide = pd.DataFrame({split: shown["model"], "scope": scope, "score": score}).pivot(
        index=split, columns="scope", values="score"
    )
    models = sorted(shown["model"].unique(), key="ensemble".__eq__)
    return wide.loc[models, scope.unique()].fillna("")


def format_scores(table: pd.DataFrame) -> str:
    """Format the means of ``scores.score_table`` for a terminal: for each split a column for each model.

    The ensemble stands first: what does not fit into the terminal is left out from the right, and named.
    """
    texts = []
    for split in _scored_splits(table):
        means = overview(table, split).map(lambda text: text.partition(" ")[0])
        texts.append(table_text(means.iloc[::-1].T.rename_axis(index=split, columns=None)))
    return "\n\n".join(texts)


def preview_csv(csv: str) -> pd.DataFrame:
    """Return the first rows of a submission, each with its first configurations and their number.

    Args:
        csv: The CSV, as a setting names it.
    """
    read = pd.read_csv(resolve(csv), dtype=str, nrows=_PREVIEWED)
    ranked = read["TopConfigs"].str.split(";")
    return pd.DataFrame(
        {
            "ID": read["ID"],
            "predicted fastest": ranked.map(lambda numbers: "; ".join(numbers[:_PREVIEWED])),
            "configurations in the row": ranked.map(len),
        }
    )


def readable_distances(rows: list[dict]) -> pd.DataFrame:
    """Return a table of scores by distance to the nearest train program.

    Args:
        rows: As ``distances.score_by_distance`` returns them.

    Returns:
        A row per split and collection, a column per part; a cell has score, number of graphs and distances.
    """
    lines: dict[tuple, dict] = {}
    for row in rows:
        ends = f"{row['smallest']:.3f} to {row['largest']:.3f}"
        shown = f"{row['score']:.3f} ({row['graphs']}; {ends})"
        lines.setdefault((row["split"], row["collection"]), {})[row["part"]] = shown
    table = [{split: collection} | parts for (split, collection), parts in lines.items()]
    return pd.DataFrame(table).fillna("")


def format_distances(rows: list[dict]) -> str:
    """Format :func:`readable_distances` for a terminal, below a line that explains it."""
    return f"{wrapped(DISTANCES + ':', 80)}\n\n{table_text(readable_distances(rows))}"
