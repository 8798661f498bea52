"""A space of the user's: named choices with their options, constraints, and what is run for each, as JSON.

The form follows Kernel Tuner's tunable parameters and restrictions::

    {"choices": {"tile": [16, 32, 64], "unroll": [1, 2, 4, 8], "flags": ["", "--fast"]},
     "constraints": ["tile * unroll <= 256"],
     "default": {"tile": 32},
     "function": "kernel.py:make"}
"""

import ast
import contextlib
import json
from collections.abc import Callable
from functools import cached_property
from itertools import product
from math import isfinite, prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from annotated_types import Len
from pydantic import AfterValidator, StringConstraints

from fastslow.core.errors import DataError, FastslowError, counted
from fastslow.core.files import parse_json
from fastslow.core.input_files import read_text
from fastslow.core.records import Record, check_record
from fastslow_programs.compiler.lowering import LocalProgram, lower_function
from fastslow_programs.compiler.tracing import Call
from fastslow_programs.program.user_program import Source
from fastslow_programs.tuning.search.space import CODE, Choice, Space

_SHOWN = 300  # characters of a message of JAX's or of the function's
_QUOTED = 200  # characters of a constraint in a message
_TESTED = 2**18  # combinations at most whose constraints are tested
_LARGEST_POWER = 2**64, 64  # of its base and its exponent: larger ones may take minutes
_DIVIDES = ast.Div, ast.FloorDiv, ast.Mod
_ARITHMETIC = (*_DIVIDES, ast.Add, ast.Sub, ast.Mult, ast.Pow, ast.UAdd, ast.USub)
_VALUES = ast.Name, ast.Load, ast.Constant, ast.List, ast.Tuple
_TRUTHS = ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.BitAnd, ast.BitOr, ast.Not, ast.Invert
_ALLOWED = (ast.Expression, ast.BinOp, ast.UnaryOp, *_VALUES, *_TRUTHS, *_ARITHMETIC)
_NAME = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]


def _is_option(value: Any) -> Any:
    if isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value)):
        return value
    raise ValueError("an option is a finite number, a text, true or false")


_OPTIONS = Annotated[list[Annotated[Any, AfterValidator(_is_option)]], Len(1, 10_000)]
_REMEDY = 'Give {"choices": {"tile": [16, 32]}} and, if wanted, "constraints", "default" and "function"'


class _Space(Record, extra="forbid"):
    choices: Annotated[dict[_NAME, _OPTIONS], Len(1, 1000)]
    constraints: list[str] = []
    default: dict[str, Any] = {}
    function: str = ""


class UserSpace:
    """A space that a JSON file describes, or a function's own parameters.

    Args:
        path: The file; of a function, its name for messages. ``choices`` maps names to lists of numbers,
            texts or booleans. Each of the ``constraints`` is an expression of the names, as for
            :meth:`pandas.DataFrame.eval` but without calls, attributes and subscripts, that is true for what
            may be proposed. ``default`` names options;
            the first of a list is the default otherwise. ``function`` is ``model.py:make``, relative to the
            file: ``make(tile=32, unroll=4)`` returns a function for ``jax.jit`` and its arguments.
        described: The description, where no file has it.
        call: Makes the call of a configuration from its values; by default ``function`` does.

    Raises:
        DataError: The file is missing or has another form, a constraint cannot be evaluated, nothing fulfils
            the constraints, or the default does not.
    """

    def __init__(
        self, path: Path, described: dict[str, Any] | None = None, call: Callable[..., Call] | None = None
    ):
        if described is None:
            described = parse_json(path, read_text(path, _REMEDY), _REMEDY)
        given = check_record(path, described, _Space, _REMEDY)
        self.path = path
        self._call = call or self._call_of_function
        self.facts = _Space.model_construct(**given)
        choices = self.facts.choices.items()  # numbers in their order, so that neighbours are alike
        self.options = {name: sorted(given) if _are_numbers(given) else given for name, given in choices}
        for name, options in self.options.items():
            self._require_distinct(name, options)
        for name, option in self.facts.default.items():
            is_option = any(are_same(option, other) for other in self.options.get(name, ()))
            self._require(is_option, f"default.{name} is {option!r}, no option of a choice", "Name an option")

    def _require_distinct(self, name: str, options: list) -> None:
        """Refuse options that are equal to Python, as 1, 1.0 and true are, or that are shown alike."""
        earlier: dict[tuple[str, Any], Any] = {}
        for option in options:
            for key in (("value", option), ("text", _shown(option))):
                both = f"{json.dumps(earlier.get(key))} and {json.dumps(option)}"
                problem = f"choices.{name} has an option twice: {both}"
                self._require(key not in earlier, problem, "Remove one, or write both as different texts")
            earlier |= {("value", option): option, ("text", _shown(option)): option}

    def _require(self, fulfilled: bool, problem: str, remedy: str) -> None:
        if not fulfilled:
            raise DataError(self.path, problem, remedy)

    @cached_property
    def space(self) -> Space:
        """The choices, and where there are constraints, the configurations that fulfil them."""
        first = {name: options[0] for name, options in self.facts.choices.items()} | self.facts.default
        default = list(self.codes(first))
        joint = self._allowed() if self.facts.constraints else None
        if joint is not None and not (joint[1] == np.array(default, CODE)[joint[0]]).all(1).any():
            allowed = np.array(default, CODE)
            allowed[joint[0]] = joint[1][0]
            remedy = f'Name another: "default": {json.dumps(self.values(allowed))} is allowed'
            raise DataError(self.path, "the default does not fulfil the constraints", remedy)
        choices = [
            Choice(name, tuple(map(_shown, options)), start, ordered=_are_numbers(options))
            for (name, options), start in zip(self.options.items(), default, strict=True)
        ]
        if joint is None:
            return Space(choices)
        if len(joint[0]) == len(choices):
            return Space(choices, joint[1])
        space = Space(choices, joint=joint)
        return space if space.size > _TESTED else Space(choices, self._listed(*joint))

    def _listed(self, named: list[int], rows: np.ndarray) -> np.ndarray:
        """Return all configurations ``(C, G)`` whose named choices have one of some combinations."""
        sizes = [len(options) for options in self.options.values()]
        others = [place for place in range(len(sizes)) if place not in named]
        rest = np.array([*product(*(range(sizes[place]) for place in others))], CODE)
        listed = np.empty((len(rows) * len(rest), len(sizes)), CODE)
        listed[:, named] = np.repeat(rows, len(rest), 0)
        listed[:, others] = np.tile(rest, (len(rows), 1))
        return listed

    def _named(self) -> list[str]:
        """Return the choices whose options are combined: all, or of too many those that constraints name."""
        names = [*self.options]
        if prod(map(len, self.options.values())) <= _TESTED:
            return names
        used = set()
        for constraint in self.facts.constraints:
            with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # refused later
                used |= {node.id for node in ast.walk(_parsed(constraint)) if isinstance(node, ast.Name)}
        return [name for name in names if name in used]

    def _allowed(self) -> tuple[list[int], np.ndarray]:
        """Return places ``(J,)`` of the combined choices, and ``(C, J)`` what fulfils all constraints."""
        named = self._named()
        chosen = [self.options[name] for name in named]
        count = prod(map(len, chosen))
        problem = f"its constraints cannot be tested on {counted(count, 'combination')}, at most {_TESTED:,}"
        self._require(count <= _TESTED, problem, "Leave out constraints: a configuration may fail")
        names = ", ".join(self.options)
        codes = np.array([*product(*map(range, map(len, chosen)))], CODE)
        table = pd.DataFrame(list(product(*chosen)), columns=named)
        for constraint in self.facts.constraints:
            quoted = repr(constraint if len(constraint) <= _QUOTED else f"{constraint[:_QUOTED]}...")
            try:
                _check_constraint(constraint, self.options)
                columns = dict(table.items())  # no name of the table's own, such as its index
                fulfilled = _evaluated(constraint, columns)
                _refuse_overflow(constraint, columns, fulfilled)
            except Exception as error:  # of whatever the expression does
                problem = f"constraint {quoted}: {type(error).__name__}: {str(error)[:_SHOWN]}"
                raise DataError(self.path, problem, f"It may use {names}") from None
            sound = isinstance(fulfilled, pd.Series) and fulfilled.dtype == bool
            problem = f"constraint {quoted} is neither true nor false"
            self._require(sound, problem, f"Compare {names}")
            self._require(fulfilled.any(), f"nothing fulfils constraint {quoted}", "Correct it")
            codes, table = codes[fulfilled], table[fulfilled]
        return [[*self.options].index(name) for name in named], codes

    def values(self, codes) -> dict[str, Any]:
        """Return the option of each choice by its name, for a configuration ``(G,)``."""
        chosen = zip(self.options.items(), codes, strict=True)
        return {name: options[int(code)] for (name, options), code in chosen}

    def codes(self, values: dict[str, Any]) -> tuple[int, ...]:
        """Return the configuration ``(G,)`` that has these options by name."""
        return tuple(options.index(values[name]) for name, options in self.options.items())

    def lower(self, codes, seed: int) -> LocalProgram:
        """Lower the function of a configuration ``(G,)`` for the devices of this machine.

        Raises:
            DataError: There is no function, or it refuses the configuration.
        """
        values = self.values(codes)
        try:
            function, arguments, keywords = self._call(**values)
            local = lower_function(function, arguments, seed, keywords)
            local.require_one_device("a space of yours")
            return local
        except DataError:
            raise
        except Exception as error:  # of the user's function, in make or in a trace
            cause = error.__cause__ or error
            said = " ".join(str(cause).split())[:_SHOWN]
            if not isinstance(cause, FastslowError):
                said = f"{type(cause).__name__}: {said}"
            remedy = "Refuse by a constraint what it cannot do"
            if np.array_equal(codes, self.space.default):
                remedy = "This is the default: correct the function, or name another default"
            problem = f"with {values}: {said}"
            if self.facts.function != str(self.path):  # which begins the message
                problem = f"{self.facts.function} {problem}"
            raise DataError(self.path, problem, remedy) from None

    def _call_of_function(self, **values: Any) -> Call:
        name = self.facts.function
        self._require(bool(name), "names no function to measure", 'Add "function", or use evaluator=command')
        return Source.of(str(self.path.parent / name)).call_of_function(**values)


def _check_constraint(constraint: str, options: dict[str, list]) -> None:
    """Raise an error for what is more than comparisons and arithmetic, before pandas evaluates it.

    pandas would call methods of columns, such as ``to_csv``, and multiply a text by any number.
    """
    if "`" in constraint:  # what pandas reads between two, Python reads otherwise
        raise SyntaxError("a backtick is not allowed")
    parsed = _parsed(constraint)
    try:
        _parsed(f"({constraint})")
    except SyntaxError:
        raise SyntaxError("a comment is not allowed") from None
    for node in ast.walk(parsed):
        literal = not isinstance(node, ast.Constant) or isinstance(node.value, bool | int | float | str)
        if not isinstance(node, _ALLOWED) or not literal:
            shown = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise SyntaxError(f"{shown} is no name, number, text, list, comparison or arithmetic")
        if isinstance(node, ast.Name) and node.id not in options:
            raise NameError(f"name {node.id!r} is not defined")
        if isinstance(node, ast.Compare):
            _check_lists(node)
        if isinstance(node, ast.BinOp | ast.UnaryOp) and isinstance(node.op, _ARITHMETIC):
            for operand in ast.iter_child_nodes(node):
                if _is_text_or_list(operand, options):
                    raise TypeError(f"{ast.unparse(operand)} can only be compared")


def _check_lists(comparison: ast.Compare) -> None:
    """Raise SyntaxError where ``in`` has no list of options and names, which pandas answers otherwise.

    To pandas a text is a list of itself, a column is all its values, and a computed entry equals nothing.
    """
    for operator, right in zip(comparison.ops, comparison.comparators, strict=True):
        if isinstance(operator, ast.In | ast.NotIn):
            shown = ast.unparse(right)
            if not isinstance(right, ast.List | ast.Tuple):
                raise SyntaxError(f"in wants a list, such as [16, 32], not {shown}")
            for entry in right.elts:
                value = entry.operand if isinstance(entry, ast.UnaryOp) else entry
                if not isinstance(value, ast.Constant | ast.Name):
                    raise SyntaxError(f"{ast.unparse(entry)} is computed in the list {shown}: use == and or")
            if len(right.elts) == 1 and isinstance(right.elts[0], ast.Name):
                raise SyntaxError(f"{shown} is a list of one name: use ==")


def _is_text_or_list(node: ast.AST, options: dict[str, list]) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.Name):
        return any(isinstance(option, str) for option in options.get(node.id, ()))
    return isinstance(node, ast.List | ast.Tuple)


def _parsed(constraint: str) -> ast.Expression:
    return ast.parse(constraint.strip(), mode="eval")


def _evaluated(constraint: str, columns: dict[str, Any]) -> Any:
    """Return the value of a checked expression of columns.

    pandas divides by 0 without a word, Python does not. Inner powers are tested before outer ones.
    """

    def value(text: str) -> Any:
        counted_text = _with_truths_as_numbers(text, columns)
        return pd.eval(counted_text, engine="python", local_dict=columns, global_dict={})

    for node in reversed([*ast.walk(_parsed(constraint))]):
        if isinstance(node, ast.BinOp) and isinstance(node.op, _DIVIDES):
            divisor = ast.unparse(node.right)
            if np.any(value(divisor) == 0):
                said = f"{divisor} is 0 for some options: exclude them in an earlier constraint"
                raise ZeroDivisionError(said)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            for operand, largest in zip((node.left, node.right), _LARGEST_POWER, strict=True):
                part = ast.unparse(operand)
                if np.any(np.abs(value(part) + 0) > largest):  # a truth as a number, too
                    raise OverflowError(f"{part} is above {largest} in a power: compare smaller numbers")
    return value(constraint)


def _with_truths_as_numbers(text: str, columns: dict[str, Any]) -> str:
    """Return an expression of one line that adds 0 to each truth in arithmetic, which makes it 0 or 1.

    To pandas the sum of two truths is a truth, to Python a number. The text is kept otherwise: a copy that
    ``ast`` writes has fewer parentheses, and pandas reads ``&`` as ``and``.
    """
    insertions: list[tuple[int, bytes]] = []
    for node in ast.walk(_parsed(text)):
        if isinstance(node, ast.BinOp | ast.UnaryOp) and isinstance(node.op, _ARITHMETIC):
            for operand in ast.iter_child_nodes(node):
                if isinstance(operand, ast.expr) and _may_be_truth(operand, columns):
                    insertions.append((operand.col_offset, b"(("))
                    insertions.append((operand.end_col_offset or 0, b") + 0)"))
    written = text.strip().encode()
    for place, inserted in sorted(insertions, reverse=True):
        written = written[:place] + inserted + written[place:]
    return written.decode()


def _may_be_truth(node: ast.expr, columns: dict[str, Any]) -> bool:
    """Return whether a part of an expression may be true or false: no number, no column of numbers."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool)
    if isinstance(node, ast.Name):
        return bool(columns[node.id].dtype == bool)
    return not (isinstance(node, ast.BinOp | ast.UnaryOp) and isinstance(node.op, _ARITHMETIC))


def _refuse_overflow(constraint: str, columns: dict[str, Any], fulfilled: Any) -> None:
    """Raise OverflowError where whole numbers of 64 bits give another answer than floats do."""
    floats = {
        name: column.astype(float) if column.dtype.kind == "i" else column for name, column in columns.items()
    }
    try:
        same = np.array_equal(_evaluated(constraint, floats), fulfilled)
    except TypeError:  # such as of bits, which floats do not have
        return
    if not same:
        raise OverflowError("its numbers are too large to be exact: compare smaller ones")


def _shown(option: bool | float | str) -> str:
    return str(option) or "''"


def are_same(one: Any, other: Any) -> bool:
    """Return whether a value is an option: 1, 1.0 and True are three."""
    return type(one) is type(other) and one == other


def _are_numbers(options: list) -> bool:
    return all(type(option) in (int, float) for option in options)
