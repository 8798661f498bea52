"""Settings of the step that trains rankers."""

from dataclasses import replace
from typing import ClassVar, Literal

from fastslow.competition.catalog import COLLECTIONS
from fastslow.core.artifacts import MANIFEST, Artifact
from fastslow.core.errors import DataError, counted
from fastslow.core.setting_fields import nearest
from fastslow.core.settings import NonNegativeFloat, Settings, Threads, Unread, resolve, unkeyed
from fastslow.rankers.libraries import LIBRARIES
from fastslow.rankers.options import RankerOptions
from fastslow.runs.features_folder import Features
from fastslow.runs.predictions import run_artifact
from fastslow.steps.training_groups import TRAIN_ON, trained_together

RANKER_ENTRY = "fastslow.steps.ranker:train_ranker"


class RankerSettings(Settings, RankerOptions):
    """Settings of the ranker notebook."""

    main: ClassVar[tuple[str, ...]] = (
        "features",
        "folder",
        "num_threads",
        "seed",
        "objective",
        "num_iterations",
        "early_stopping_rounds",
        "learning_rate",
        "num_leaves",
        "min_data_in_leaf",
    )

    features: str = unkeyed("features/sample/layout-xla-random")
    """Features folder of the collection to learn from and to predict."""
    folder: str = unkeyed("runs/play/ranker")
    """Run folder to write."""
    runs: list[str] = unkeyed([])
    """Run folders of the other collections that ``train_on`` names, to be written from the same trees, in the
    order xla:default, xla:random, nlp:default, nlp:random; if empty, ``folder`` alone is written."""
    num_threads: Threads = unkeyed(0)
    """Threads of the library; 0 takes OMP_NUM_THREADS or, where that is not set, every core."""
    hours: NonNegativeFloat = unkeyed(0.0, decisive=True)
    """Stop after this many hours of growing trees, and keep them; 0 has no limit. With a larger limit, trees
    that it ended are grown again. A run with a budget sets it."""
    train_on: Literal[*TRAIN_ON] = "source"
    """Collections whose train graphs are learned from: only the ``collection``, both searches of its
    ``source`` (xla or nlp), or every ``layout`` collection. The trees are the same whichever of them is
    predicted. The features folders of the others are expected beside its own; layout only."""

    def check(self) -> None:
        """Refuse a library that is not registered, and a single fold, which leaves out all train programs."""
        known = f"one of {', '.join(LIBRARIES)}{nearest(self.library, LIBRARIES)}"
        self.require(self.library in LIBRARIES, "library", known)
        self.require(self.folds != 1, "folds", "0, or 2 and more")

    def unread(self) -> Unread:
        """Return the fields that the objective does not read, and without early stopping its fields."""
        names = () if self.early_stopping_rounds else ("evaluate_every", "valid_configs")
        kept = dict.fromkeys(names, ("with early_stopping_rounds=0", "choose early_stopping_rounds"))
        if self.objective != "pairwise":
            why = f"with objective={self.objective!r}"
            kept["pairs_per_config"] = (why, "choose the objective pairwise")
        return kept

    def require_kind(self, kind: str) -> None:
        """Refuse what is not read for collections of a kind; the workflow asks before there are features.

        Raises:
            SettingsError: A setting is for layout only, and has another value than its default.
        """
        if kind != "layout":
            remedy = "set it for layout only (ranker.layout.train_on=...)"
            self.require_defaults({"train_on": (f"for {kind}", remedy)})

    def artifact(self) -> Artifact:
        """Return the run folder ``folder`` of the features' collection, with what its content depends on.

        Its parts are the run folders ``runs``, of the other collections that the same trees predict.

        Raises:
            SettingsError: A setting that collections of this kind do not read has another value than its
                default, or ``runs`` does not have one folder for each of the other collections.
        """
        predicted = Features(resolve(self.features)).collection
        self.require_kind(predicted.kind)
        sources = self.sources()
        others = [slug for slug in sources if slug != predicted.slug]
        fits = len(self.runs) in (0, len(others)) and len({self.folder, *self.runs}) == 1 + len(self.runs)
        self.require(
            fits, "runs", f"empty, or {counted(len(others), 'folder')}, of {', '.join(others) or 'no other'}"
        )
        folders = {predicted.slug: self.folder, **dict(zip(others, self.runs, strict=False))}
        artifacts = {slug: self._run(folder, slug, sources) for slug, folder in folders.items()}
        return replace(artifacts.pop(predicted.slug), parts=tuple(artifacts.values()))

    def _run(self, folder: str, slug: str, sources: dict[str, Features]) -> Artifact:
        also = [source for other, source in sources.items() if other != slug]
        return run_artifact("ranker", RANKER_ENTRY, self, folder, sources[slug], also, self.hours)

    def sources(self) -> dict[str, Features]:
        """Return the features of every collection to learn from, by slug, in the order of the collections.

        Raises:
            DataError: One of them was not built.
        """
        folder = resolve(self.features)
        predicted = Features(folder).collection
        learned = {predicted, *trained_together(predicted, self.train_on)}
        beside = {c.slug: folder.parent / c.slug for c in COLLECTIONS if c in learned}
        paths = beside | {predicted.slug: folder}
        for path in paths.values():
            if not (path / MANIFEST).is_file():
                problem = f"no finished features there, which train_on={self.train_on} also learns from"
                remedy = "Build them (`make features`), or set train_on='collection' to do without them"
                raise DataError(path, problem, remedy)
        return {slug: Features(path) for slug, path in paths.items()}
