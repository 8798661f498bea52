"""A table of cases in one test: each row is a subtest, and a failure names the values of its row."""

import functools
import inspect


def cases(names, table):
    """Run a test for each row of a table, as subtests of pytest in place of a case each.

    Every row has a folder of its own in ``tmp_path``, a ``monkeypatch`` that is undone after it, and an empty
    ``capsys``.

    Args:
        names: Names of the arguments, separated by commas.
        table: A value for each name in each row; a plain value where there is one name.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    rows = [row if len(names) > 1 else (row,) for row in table]

    def decorate(test):
        others = [value for name, value in inspect.signature(test).parameters.items() if name not in names]
        if not any(other.name == "subtests" for other in others):
            others.insert(0, inspect.Parameter("subtests", inspect.Parameter.POSITIONAL_OR_KEYWORD))

        @functools.wraps(test)
        def run(**fixtures):
            for number, row in enumerate(rows):
                given = dict(zip(names, row, strict=True))
                shown = {name: repr(value)[:200] for name, value in given.items()}
                with fixtures["subtests"].test(f"row {number}", **shown):
                    _call(test, number, fixtures, given)

        run.__signature__ = inspect.Signature(others)
        return run

    return decorate


def _call(test, number, fixtures, given):
    own = {name: fixtures[name] for name in inspect.signature(test).parameters if name not in given}
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / f"row{number}"
        own["tmp_path"].mkdir()
    if "capsys" in own:
        own["capsys"].readouterr()
    if "monkeypatch" not in own:
        return test(**own, **given)
    with own.pop("monkeypatch").context() as monkeypatch:
        return test(**own, **given, monkeypatch=monkeypatch)
