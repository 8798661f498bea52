"""Good artifacts, made once a session."""

from helpers.good_artifacts import good  # noqa: F401 (fixture)
