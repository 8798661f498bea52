"""Errors that a user can mend; the message names what is wrong and the remedy."""


class FastslowError(Exception):
    """Base class: the command line and notebooks print the message without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class SettingsError(FastslowError, ValueError):
    """A setting is unknown, of the wrong type, or out of range; the message names the field."""


class DataError(FastslowError, ValueError):
    """A file is missing, broken, or does not fit its neighbours.

    The message names the file, the key or row where there is one, and the remedy.
    """

    def __init__(self, path: object, problem: str, remedy: str):
        super().__init__(path, problem, remedy)  # as given: pickle makes the error again from them

    def __str__(self) -> str:
        return "{}: {}. {}".format(*self.args)
