"""Pack a finished run of ``make submit`` into the package: ``python -m common.pack_models``.

It is run in ``benchmarks`` and packs ``runs/more``. The rankers of ``runs/sample`` are members of its layout
ensembles, too. They have no weight, except for programs whose tensors are far larger than a train
program's, where all rankers share equally (``FinishedRun.weights``).
"""

import argparse
import hashlib
import io
import lzma
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from common.command_line import run_main
from fastslow.competition.catalog import COLLECTIONS, TEST
from fastslow.core.artifacts import CHECKSUM, MANIFEST, finished_file, read_manifest, write_manifest
from fastslow.core.errors import DataError
from fastslow.core.figures import MODEL_WORDS
from fastslow.core.files import atomic_path, read_json
from fastslow.core.npz_io import write_arrays
from fastslow.core.settings import resolve
from fastslow.core.tables import table_markdown
from fastslow.evaluation.run_record import RECORD
from fastslow.evaluation.score_tables import overview, pool_seeds
from fastslow.evaluation.submission_record import read_submission_record
from fastslow.runs.features_folder import Features
from fastslow.runs.packaged import ARCHIVE
from fastslow.runs.predictions import read_predictions
from fastslow.runs.run_manifest import find_members, read_run_manifest
from fastslow.runs.scalers import SCALERS
from fastslow.runs.trained_network import WEIGHTS
from fastslow.runs.trained_ranker import MODEL
from fastslow_programs.ranking.trust import FILE, Seen

CARD = "README.md"
EXPECTED = "expected.npz"
"""Predictions of some test programs by the run: code that builds other features gives others."""
_EXPECTED_PROGRAMS = 3  # of each collection
MOST_BYTES = 5_000_000
"""Maximum size of the archive in git."""
# most bytes are those of float32 weights, aligned to four: 8 % less than by the default contexts
_FILTER = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 2, "pb": 2}
_READ = (WEIGHTS, SCALERS, MODEL)
_PACK = "Train the run again (make submit), then pack it"


def pack_models(name: str, rankers: str = "", out: str = "src/fastslow_programs/models") -> Path:
    """Pack a finished run into one archive, and write the card of its models.

    The same run gives the same bytes.

    Args:
        name: Name of a finished run of ``make submit`` with an ensemble of every collection.
        rankers: Name of another one, whose rankers are added to the layout ensembles; none by default.
        out: Folder to write the archive and its card to.

    Returns:
        The archive.

    Raises:
        DataError: The run lacks an ensemble or a member, its record or its features, or is too large.
    """
    runs = resolve(f"runs/{name}")
    files = {}
    for folder in _folders(runs):
        files |= _kept_files(folder, folder.name)
    with tempfile.TemporaryDirectory() as temporary:
        if rankers:
            files |= _added_rankers(runs, resolve(f"runs/{rankers}"), Path(temporary))
        for kind in ("layout", "tile"):
            pairs = {
                runs / f"ensemble-{c.slug}": Features(resolve(f"features/{name}/{c.slug}"))
                for c in COLLECTIONS
                if c.kind == kind
            }
            Seen.gather(pairs).write(Path(temporary), kind)
            files[FILE.format(kind=kind)] = Path(temporary) / FILE.format(kind=kind)
        files[EXPECTED] = Path(temporary) / EXPECTED
        write_arrays(files[EXPECTED], _expected(runs))
        packed = lzma.compress(_archive(files), filters=[_FILTER])
    path = resolve(out) / ARCHIVE
    if len(packed) > MOST_BYTES:
        raise DataError(path, f"{len(packed):,} bytes, at most {MOST_BYTES:,}", "Pack a run with fewer seeds")
    with atomic_path(path) as temporary:
        temporary.write_bytes(packed)
    with atomic_path(path.with_name(CARD)) as temporary:
        temporary.write_text(_card(name, rankers, runs, len(packed)))
    print(f"{path}: {len(packed):,} bytes, {len(files)} files")
    return path


def _kept_files(folder: Path, packed_as: str) -> dict[str, Path]:
    """Return the files of a run folder that predicting needs, by their names in the archive."""
    manifest = read_manifest(folder)
    kept = [file for file in _READ if file in (manifest.get("outputs") or {})]
    files = {f"{packed_as}/{file}": finished_file(folder, file, _PACK, manifest) for file in kept}
    return files | {f"{packed_as}/{MANIFEST}": folder / MANIFEST}


def _added_rankers(runs: Path, others: Path, temporary: Path) -> dict[str, Path]:
    """Return the files of another run's layout rankers, and of manifests that name them as members."""
    files = {}
    for collection in (collection for collection in COLLECTIONS if collection.kind == "layout"):
        name = f"ensemble-{collection.slug}"
        manifest = read_manifest(runs / name)
        del manifest[CHECKSUM]
        members = read_manifest(others / name)["members"]
        for member, folder in find_members(others / name, read_manifest(others / name)).items():
            if members[member]["model"] != "ranker":
                continue
            packed_as = f"{others.name}-{member}"
            files |= _kept_files(folder, packed_as)
            facts = {"weight": 0.0, "folder": packed_as, "model": f"ranker of {others.name}"}
            manifest["members"][packed_as] = members[member] | facts
            manifest["inputs"][packed_as] = read_manifest(folder)["fingerprint"]
        write_manifest(temporary / name, manifest)
        files[f"{name}/{MANIFEST}"] = temporary / name / MANIFEST
    return files


def _expected(runs: Path) -> dict[str, np.ndarray]:
    """Return the ensembles' stored predictions of some test programs, named ``COLLECTION/PROGRAM``."""
    found = {}
    for collection in COLLECTIONS:
        stored = read_predictions(runs / f"ensemble-{collection.slug}")[TEST]
        found |= {f"{collection.slug}/{name}": stored[name] for name in sorted(stored)[:_EXPECTED_PROGRAMS]}
    return found


def _folders(runs: Path) -> Iterator[Path]:
    """Yield the ensemble of every collection and its members."""
    for collection in COLLECTIONS:
        ensemble = runs / f"ensemble-{collection.slug}"
        yield ensemble
        yield from find_members(ensemble, read_run_manifest(ensemble)).values()


def _archive(files: dict[str, Path]) -> bytes:
    """Return a tar file without times and owners; files of equal content stand beside each other."""
    content = {name: path.read_bytes() for name, path in files.items()}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(content, key=lambda n: (Path(n).name, hashlib.sha256(content[n]).digest(), n)):
            member = tarfile.TarInfo(name)
            member.size = len(content[name])
            archive.addfile(member, io.BytesIO(content[name]))
    return buffer.getvalue()


def _card(name: str, rankers: str, runs: Path, size: int) -> str:
    record = read_submission_record(resolve(f"submissions/{name}.csv"), "table")
    table = pd.DataFrame(record["table"])
    manifest = read_run_manifest(runs / f"ensemble-{COLLECTIONS[0].slug}")
    pooled = pool_seeds(table)
    trained = pooled[pooled["weight"].notna() & (pooled["model"] != "ensemble")]
    members = [
        f"- {collection}: "
        + ", ".join(
            f"{MODEL_WORDS[row.model]} (seeds: {row.seeds}, weight: {row.weight:.2f})"
            for row in collection_models.itertuples()
        )
        for collection, collection_models in trained.groupby("collection", sort=False)
    ]
    return f"""# Models in the package

`{ARCHIVE}` ({size / 1e6:.1f} MB) holds the models with which `fastslow rank` and `tune` predict where
you have trained none. `benchmarks/common/pack_models.py` packed a run on `{read_json(runs / RECORD)["data"]}`
(commit {manifest["commit"]}, {manifest["created"]}).

## Data and labels

Train programs of a zoo of JAX networks (`data/sample_and_more`: the sample and `make sample SIZE=more`),
compiled for TPU v3. The labels are the **TPU compiler's own estimates of cycles**, not measured time.

## Models

{chr(10).join(members)}

The trees of `runs/{rankers}` have no weight. Where a program's tensors are far larger than a train
program's, networks have none, and all trees share equally (`FinishedRun.weights`, `more_programs.md`).

Settings, inputs, code and scores per program are in the `{MANIFEST}` of each folder of the archive.

## Scores

Sample competition. Layout collections: Kendall's tau. Tile: 1 - slowdown of the five configurations predicted
fastest. The first rows are trivial rules. Valid programs chose the weights; no model saw the test programs.

{table_markdown(overview(table))}

## Limits

- On measured programs the models may be no better than a trivial rule: `does_it_help.md` has both, and what
  known runtimes add.
- Most train programs are small. `fastslow rank` names the distance to the nearest one and opcodes that none
  has. Bands for the score and probabilities are there where a program like yours was scored.
- The models rank for TPU v3. No table measures them on other generations.

## Licence

MIT, as the code. The sample competition was made by this project; no file of TpuGraphs was used.
"""


def main(arguments: list[str]) -> int:
    """Pack the run ``more`` with the rankers of ``sample`` and return the exit status."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(arguments)
    pack_models("more", rankers="sample")
    return 0


if __name__ == "__main__":
    run_main(main)
