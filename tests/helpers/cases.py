"""A table of cases in one test: each row is a subtest, and a failure names the values of its row."""

import contextlib
import functools
import inspect


def cases(names, table, **made):
    """Run a test for each row of a table, as subtests of pytest in place of a case each.

    Every row has a folder of its own in ``tmp_path``, a ``monkeypatch`` that is undone after it, and an empty
    ``capsys``.

    Args:
        names: Names of the arguments, separated by commas.
        table: A value for each name in each row; a plain value where there is one name.
        **made: Further arguments, each a function of fixtures that is called for every row, as pytest calls a
            fixture: what a generator does after its yield is done after the row.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    rows = [row if len(names) > 1 else (row,) for row in table]

    def decorate(test):
        fixtures = {
            name: inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for wanted in ({"subtests": None}, _parameters(test), *map(_parameters, made.values()))
            for name in wanted
            if name not in names and name not in made
        }

        @functools.wraps(test)
        def run(**given):
            for number, row in enumerate(rows):
                values = dict(zip(names, row, strict=True))
                shown = {name: repr(value)[:200] for name, value in values.items()}
                with given["subtests"].test(f"row {number}", **shown), _row(number, given, made) as arguments:
                    arguments |= values
                    test(**{name: arguments[name] for name in _parameters(test)})

        run.__signature__ = inspect.Signature([*fixtures.values()])
        return run

    return decorate


def _parameters(function):
    return inspect.signature(function).parameters


@contextlib.contextmanager
def _row(number, fixtures, made):
    with contextlib.ExitStack() as stack:
        arguments = dict(fixtures)
        if "tmp_path" in arguments:
            arguments["tmp_path"] = arguments["tmp_path"] / f"row{number}"
            arguments["tmp_path"].mkdir()
        if "capsys" in arguments:
            arguments["capsys"].readouterr()
        if "monkeypatch" in arguments:
            arguments["monkeypatch"] = stack.enter_context(arguments["monkeypatch"].context())
        for name, make in made.items():
            value = make(**{argument: arguments[argument] for argument in _parameters(make)})
            if inspect.isgenerator(value):
                value = stack.enter_context(contextlib.contextmanager(lambda value=value: value)())
            arguments[name] = value
        yield arguments
