"""JSON records with required keys: the error for an edited manifest names the key."""

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError

from fastslow.core.errors import DataError
from fastslow.core.files import read_json

_LONGEST_NAME, _LONGEST_PATH = 255, 4095  # bytes that Linux allows


def _is_file_name(name: str) -> str:
    try:
        encoded = os.fsencode(name.encode().decode())
    except UnicodeError:
        raise ValueError("it is not Unicode") from None
    if b"\0" in encoded or len(encoded) > _LONGEST_PATH:
        raise ValueError("no file has this name")
    if max(map(len, encoded.split(b"/"))) > _LONGEST_NAME:
        raise ValueError("no file has a name this long")
    return name


FileName = Annotated[str, AfterValidator(_is_file_name)]
"""A path that the operating system takes: Unicode without NUL, not too long."""


class Record(BaseModel):
    """Base class: the keys that a JSON object must have, with types and ranges; it may have more.

    Types are strict, and no number is NaN or infinite.
    """

    model_config = ConfigDict(strict=True, allow_inf_nan=False, protected_namespaces=())


def is_valid(annotation: Any, value: Any) -> bool:
    """Return whether a value has an annotated type, such as ``Annotated[int, Ge(0)]``."""
    try:
        TypeAdapter(annotation).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def check_record(path: Path, value: Any, kind: type[Record], remedy: str) -> dict[str, Any]:
    """Return the JSON value of a file, after a check of its keys.

    Args:
        path: The file, for the message.
        value: The value that was read from it.
        kind: The keys and their types; there may be more keys.
        remedy: Advice for the message.

    Raises:
        DataError: It is no object, lacks a key, or a value has another type or is out of range.
    """
    if not isinstance(value, dict):
        raise DataError(path, f"a JSON object is wanted, not {type(value).__name__}", remedy)
    try:
        kind.model_validate(value)
    except ValidationError as error:
        raise DataError(path, describe_fault(error), remedy) from None
    return value


def describe_fault(error: ValidationError) -> str:
    """Return in words what is wrong with a record: the key that it lacks, or a key, its value and why."""
    first = error.errors()[0]
    key = _shown(".".join(map(str, first["loc"])))[1:-1]
    if first["type"] == "missing":
        return f"it lacks the key {key}"
    return f"{key} is {_shown(first['input'])}: {first['msg']}"


def read_record(path: Path, kind: type[Record], remedy: str) -> dict[str, Any]:
    """Read a JSON object from a file and check its keys, see :func:`check_record` for the arguments.

    Raises:
        DataError: The file is missing or no JSON, or as for :func:`check_record`.
    """
    return check_record(path, read_json(path), kind, remedy)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
