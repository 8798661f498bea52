"""What files of the public problem sets hold: types and ranges, checked once when a file is read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fastslow.core.errors import DataError

_Schema = TypeVar("_Schema", bound=BaseModel)
LARGEST = 1e15  # of a time, size or transfer; sums and 12th powers of shares stay finite
MOST_DEVICES = 4096
Whole = Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False, le=LARGEST)]
Cost = Annotated[float, Field(strict=True, ge=0, le=1e30)]
Flag = Literal[0, 1] | Annotated[bool, Field(strict=True)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Node(_Part):
    """A node of dnn-partitioning."""

    id: Whole
    fpgaLatency: Number
    cpuLatency: Number
    supportedOnFpga: Flag
    isBackwardNode: Flag
    size: Number = 0.0
    name: str | Whole | None = None
    colorClass: Whole | str | None = None


class Edge(_Part):
    """An edge of dnn-partitioning."""

    sourceId: Whole
    destId: Whole
    cost: Number


class Instance(_Part):
    """An instance of dnn-partitioning."""

    nodes: Annotated[list[Node], Field(min_length=1)]
    edges: list[Edge]
    maxFPGAs: Annotated[int, Field(strict=True, ge=1, le=MOST_DEVICES)]
    maxCPUs: Annotated[int, Field(strict=True, ge=0, le=MOST_DEVICES)]
    maxSizePerFPGA: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


Interval = Annotated[list[Whole], Field(max_length=2)]


class ShardingNodes(_Part):
    """Nodes of iopddl; an interval is empty for a node that is never alive."""

    intervals: list[Interval | None]
    costs: Annotated[list[Annotated[list[Cost], Field(min_length=1)]], Field(min_length=1)]
    usages: list[list[Cost]]


class ShardingEdges(_Part):
    """Edges of iopddl."""

    nodes: list[Annotated[list[Whole], Field(min_length=2, max_length=2)]]
    costs: list[list[Cost]]


class ShardingFields(_Part):
    """A problem of iopddl."""

    nodes: ShardingNodes
    edges: ShardingEdges
    usage_limit: Annotated[float, Field(strict=True, ge=0, le=1e30)] | None = None


class ShardingFile(_Part):
    """A file of iopddl."""

    problem: ShardingFields


def checked(path: Path, data: object, schema: type[_Schema], what: str, remedy: str) -> _Schema:
    """Return what a file holds as its schema.

    Args:
        path: The file, for the message.
        data: What its JSON holds.
        schema: What it should hold.
        what: Name of such a file, for the message.
        remedy: What to do.

    Raises:
        DataError: A field is missing, of another type or out of its range; the message names the first.
    """
    if not isinstance(data, Mapping):
        raise DataError(path, f"is no {what}: an object is wanted", remedy)
    try:
        return schema.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(path, f"is no {what}: {where}: {first['msg']}", remedy) from None
