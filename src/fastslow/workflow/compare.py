"""The command ``compare``: two runs, two models or two submissions; their files show which."""

from fastslow.core.errors import SettingsError
from fastslow.evaluation.compare import CompareSettings, compare_runs


def compare(settings: CompareSettings) -> None:
    """Print which of two is better (runs, models), or how far they rank alike (submissions).

    Raises:
        SettingsError: The two are not of one sort, or belong to different collections.
        DataError: One of them is missing or broken.
    """
    one, other = settings.folders()
    csv = [path.suffix == ".csv" or path.is_file() for path in (one, other)]
    if csv[0] != csv[1]:
        sorts = ["a submission" if is_csv else "a folder" for is_csv in csv]
        problem = f"{settings.other} is {sorts[1]}, {settings.one} {sorts[0]}; name two of the same sort"
        raise SettingsError("other", problem)
    if csv[0]:
        from fastslow.kaggle.agreement import agreement, summary, without_counterpart

        table = summary(agreement(one, other)).round(3).astype(object).fillna("")
        print(table.to_markdown(disable_numparse=True))
        for reason in without_counterpart(one, other):
            print(reason)
    else:
        compare_runs(settings)
