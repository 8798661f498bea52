"""The command ``rank``: rank a program, write what was found, and print it, words before numbers."""

import contextlib
import json
from typing import Any

from fastslow.core.errors import DataError
from fastslow.core.files import check_writable, read_json
from fastslow.core.settings import resolve
from fastslow.core.tables import facts_text, sentences_text, table_text
from fastslow_programs.ranking.models import describe_run
from fastslow_programs.ranking.rank import EFFECTS, ENDS, FACTS, PAGE, TABLE, rank_source, write_ranking
from fastslow_programs.ranking.settings import RankSettings


def rank_program(settings: RankSettings) -> dict[str, Any]:
    """Rank a program, write its tables, figures and page, and print what was found.

    Args:
        settings: Of the ranking. ``source`` and ``data_root`` start at the working folder, and so does
            ``run`` where there is such a folder; otherwise it starts at the repository.

    Returns:
        The sentences, the facts and rows of the ranking, and the files.

    Raises:
        SettingsError: A setting is wrong, or a source of this kind cannot be ranked.
        DataError: The source does not exist, no run was trained, or the run belongs to another collection.
    """
    settings = settings.from_working_folder("source", "data_root", "hlo_folder", "known", "run")
    check_writable(resolve(settings.folder) / TABLE)
    print(sentences_text([f"models: {describe_run(settings.find_run())}"]), flush=True)
    if replaced := _ranking_of_another(settings):
        notice = f"note: this replaces the ranking of {replaced}, of the same name; name=NAME keeps both"
        print(sentences_text([notice]), flush=True)
    ranking = rank_source(settings)
    folder = write_ranking(ranking, settings)
    print(sentences_text(ranking.words()[1:]), end="\n\n")
    print(f"{table_text(ranking.first_rows())}\n")
    files = {"ranking": TABLE, "effects of the choices": EFFECTS, "fastest and slowest": ENDS}
    files |= {"page with figures": PAGE}
    written = {what: folder / name for what, name in files.items()}
    print(facts_text(written))
    rows = json.loads(ranking.table.to_json(orient="records"))
    return {"found": ranking.words(), **ranking.facts(), "table": rows, **written}


def _ranking_of_another(settings: RankSettings) -> str:
    """Return the source of a ranking that the folder holds, if it is another one; empty otherwise."""
    with contextlib.suppress(DataError, KeyError, TypeError):  # none, or one that is damaged
        source: str = read_json(resolve(settings.folder) / FACTS)["settings"]["source"]
        return source if source != settings.source else ""
    return ""
