"""Draw programs that cannot exist: HLO modules and competition files with one thing changed.

A change may leave a program that can exist, such as another constant; who draws judges what was accepted.
"""

from collections.abc import Callable

import numpy as np

from fastslow.competition.node_columns import COLUMN_NAMES, ELEMENT_TYPES, LAYOUT, LISTS, SHAPE
from fastslow.competition.opcodes import OPCODES
from fastslow.hlo.messages import PRIMITIVE_TYPES, Module

_ODD = (-1, 0, 1, 2, 3, 7, 99, 10**6, 2**40)
_COLUMN = {name: number for number, name in enumerate(COLUMN_NAMES)}
_PREFIX = _COLUMN["element_type_invalid"]


# ---- HLO


def _tensor(shape):
    while shape.tuple_shapes:
        shape = shape.tuple_shapes[0]
    return shape


def _fields(message, path=""):
    """Yield path, message and descriptor of every number and list that an instruction has."""
    for field, value in message.ListFields():
        if field.name in ("shape", "metadata", "literal", "operand_shapes_with_layout", "id", "operand_ids"):
            continue
        if field.name in ("called_computation_ids", "parameter_number", "backend_config", "name", "opcode"):
            continue
        where = f"{path}.{field.name}".removeprefix(".")
        if field.message_type:
            for number, part in enumerate(value if field.is_repeated else [value]):
                yield from _fields(part, f"{where}[{number}]" if field.is_repeated else where)
            yield where, message, field
        elif field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_INT32):
            yield where, message, field


def _attribute(rng, module, part, inst):
    fields = [*_fields(inst)]
    if not fields:
        return None
    where, message, field = fields[rng.integers(len(fields))]
    values = getattr(message, field.name)
    if field.message_type or (field.is_repeated and rng.random() < 0.3):
        message.ClearField(field.name)
        return f"{where} lost"
    odd = int(rng.choice(_ODD))
    if not field.is_repeated:
        setattr(message, field.name, odd)
    elif rng.random() < 0.3:
        values.append(odd)
    else:
        values[rng.integers(len(values))] = odd
    return f"{where} {odd}"


def _size(rng, module, part, inst):
    shape = _tensor(inst.shape)
    if not shape.dimensions:
        return None
    axis = rng.integers(len(shape.dimensions))
    shape.dimensions[axis] = max(0, shape.dimensions[axis] + int(rng.choice([-1, 1, 5])))
    return "another size"


def _rank(rng, module, part, inst):
    shape = _tensor(inst.shape)
    if shape.element_type == PRIMITIVE_TYPES["token"]:
        return None
    shape.dimensions.append(int(rng.integers(1, 3)))
    shape.layout.minor_to_major.append(len(shape.dimensions) - 1)
    return "one more rank"


def _type(rng, module, part, inst):
    shape = _tensor(inst.shape)
    before = shape.element_type
    shape.element_type = int(rng.choice([0, 1, 2, 4, 8, 11, 15, 13, 17, 50, 70]))
    return None if before == shape.element_type else f"element type {before} to {shape.element_type}"


def _no_tuple(rng, module, part, inst):
    if not inst.shape.tuple_shapes:
        return None
    if rng.random() < 0.5:
        del inst.shape.tuple_shapes[-1]
        return "a part of a tuple lost"
    inst.shape.tuple_shapes.add().CopyFrom(inst.shape.tuple_shapes[0])
    return "a part of a tuple more"


def _operand(rng, module, part, inst):
    ids = inst.operand_ids
    what = rng.choice(["lost", "more", "another", "missing", "swapped", "itself"])
    others = [i.id for i in part.instructions]
    if what == "more":
        ids.append(int(rng.choice(others)))
    elif not ids:
        return None
    elif what == "lost":
        del ids[-1]
    elif what == "swapped":
        ids[:] = list(ids)[::-1]
    else:
        ids[rng.integers(len(ids))] = {"another": int(rng.choice(others)), "missing": 10**6}.get(
            what, inst.id
        )
    return f"an operand {what}"


def _called(rng, module, part, inst):
    ids = inst.called_computation_ids
    what = rng.choice(["lost", "more", "another", "missing"])
    if what == "more":
        ids.append(int(rng.choice([c.id for c in module.computations])))
    elif not ids:
        return None
    elif what == "lost":
        del ids[-1]
    else:
        every = [c.id for c in module.computations]
        ids[rng.integers(len(ids))] = int(rng.choice(every)) if what == "another" else 10**6
    return f"a computation {what}"


def _opcode(rng, module, part, inst):
    before = inst.opcode
    inst.opcode = str(rng.choice(sorted(OPCODES)))
    return f"opcode {before} to {inst.opcode}"


def _numbers(rng, module, part, inst):
    what = rng.choice(["root", "entry", "id", "parameter"])
    if what == "root":
        part.root_id = int(rng.choice([*(i.id for i in part.instructions), 10**6]))
    elif what == "entry":
        module.entry_computation_id = int(rng.choice([*(c.id for c in module.computations), 10**6]))
    elif what == "id":
        inst.id = int(rng.choice([*(i.id for i in part.instructions), -1]))
    elif inst.opcode != "parameter":
        return None
    else:
        inst.parameter_number = int(rng.choice(_ODD))
    return f"another {what}"


def _layout(rng, module, part, inst):
    order = _tensor(inst.shape).layout.minor_to_major
    if not order:
        return None
    order[rng.integers(len(order))] = int(rng.choice([-1, 0, 9]))
    return "another layout"


_OF_MODULES = (_attribute, _attribute, _size, _rank, _type, _no_tuple, _operand, _called, _opcode, _numbers)
_OF_MODULES += (_layout,)


def break_module(code: bytes, seed: int) -> tuple[bytes, str]:
    """Return a serialised module with one thing changed, and in words what of which instruction."""
    rng = np.random.default_rng(seed)
    before = Module.FromString(code)
    while True:
        module = Module.FromString(code)
        part = module.computations[rng.integers(len(module.computations))]
        inst = part.instructions[rng.integers(len(part.instructions))]
        name = f"{inst.opcode} {inst.name}"
        change = _OF_MODULES[rng.integers(len(_OF_MODULES))]
        what = change(rng, module, part, inst)
        if what and module != before:
            return module.SerializeToString(), f"{name}: {what}"


def break_text(text: str, seed: int) -> tuple[str, str]:
    """Return a text with a part of it lost, doubled or replaced, and in words what."""
    rng = np.random.default_rng(seed)
    lines = text.split("\n")
    place = int(rng.integers(len(lines)))
    what = str(
        rng.choice(["cut", "line lost", "line twice", "lines swapped", "digit", "word", "brace", "tail lost"])
    )
    if what == "cut":
        return text[: int(rng.integers(1, len(text)))], what
    if what == "tail lost":
        return "\n".join(lines[:place]), what
    if what == "line lost":
        del lines[place]
    elif what == "line twice":
        lines.insert(place, lines[place])
    elif what == "lines swapped":
        other = int(rng.integers(len(lines)))
        lines[place], lines[other] = lines[other], lines[place]
    else:
        kinds = {"digit": str.isdigit, "word": str.isalpha, "brace": "{}[]()<>".__contains__}
        places = [n for n, letter in enumerate(text) if kinds[what](letter)]
        at = int(rng.choice(places))
        new = str(rng.choice({"digit": [*"0123456789"], "word": [*"xyz"], "brace": ["", "{", ")"]}[what]))
        return text[:at] + new + text[at + 1 :], what
    return "\n".join(lines), what


# ---- competition files


def set_sizes(feat: np.ndarray, node: int, sizes: list[int]) -> None:
    """Give a node other sizes, with their sum and product and a layout, row-major."""
    width = SHAPE.stop - SHAPE.start
    feat[node, SHAPE] = [*sizes, *[0] * (width - len(sizes))]
    feat[node, SHAPE.stop : SHAPE.stop + 2] = sum(sizes), np.prod(sizes)
    feat[node, LAYOUT] = [*range(len(sizes))[::-1], *[0] * (width - len(sizes))]


def _node_size(rng, arrays, node):
    sizes = [int(size) for size in arrays["node_feat"][node, SHAPE] if size]
    if not sizes:
        return None
    sizes[rng.integers(len(sizes))] += int(rng.integers(1, 9))
    set_sizes(arrays["node_feat"], node, sizes)
    return "another size"


def _node_rank(rng, arrays, node):
    sizes = [int(size) for size in arrays["node_feat"][node, SHAPE] if size]
    if len(sizes) == 6:
        return None
    set_sizes(arrays["node_feat"], node, [*sizes, int(rng.integers(1, 3))])
    return "one more rank"


def _node_type(rng, arrays, node):
    types = arrays["node_feat"][node, _PREFIX : _PREFIX + len(ELEMENT_TYPES)]
    kind = int(rng.integers(len(ELEMENT_TYPES)))
    before = int(types.argmax())
    types[:] = 0
    types[kind] = 1
    return None if kind == before else f"type {ELEMENT_TYPES[before]} to {ELEMENT_TYPES[kind]}"


def _node_list(rng, arrays, node):
    name = str(rng.choice([name for name in LISTS if name not in ("shape", "layout")]))
    column = int(rng.choice([c for places in LISTS[name] for c in range(places.start, places.stop)]))
    arrays["node_feat"][node, column] = before = int(rng.choice(_ODD[:-1]))
    return f"{COLUMN_NAMES[column]} {before}"


def _node_column(rng, arrays, node):
    column = int(rng.integers(len(COLUMN_NAMES)))
    arrays["node_feat"][node, column] = value = float(rng.choice([*_ODD[:-1], 0.5, np.nan, np.inf, 5]))
    return f"{COLUMN_NAMES[column]} {value}"


def _node_opcode(rng, arrays, node):
    before = int(arrays["node_opcode"][node])
    arrays["node_opcode"][node] = after = int(rng.integers(1, 121))
    return None if before == after else f"opcode {before} to {after}"


def _edge(rng, arrays, node):
    edges = arrays["edge_index"]
    if len(edges) < 2:
        return None
    what = str(rng.choice(["lost", "more", "turned", "all lost", "all of a node lost", "another operand"]))
    row = int(rng.integers(len(edges)))
    if what == "lost":
        arrays["edge_index"] = np.delete(edges, row, 0)
    elif what == "all lost":
        arrays["edge_index"] = edges[:0]
    elif what == "all of a node lost":
        arrays["edge_index"] = edges[edges[:, 0] != node]
    elif what == "turned":
        edges[row] = edges[row, ::-1].copy()
    elif what == "another operand":
        edges[row, 1] = int(rng.integers(edges[row, 0])) if edges[row, 0] else 0
    else:
        new = np.array([[node, int(rng.integers(max(node, 1)))]], edges.dtype)
        arrays["edge_index"] = np.unique(np.concatenate([edges, new]), axis=0)
    return f"an edge {what}"


def _rows(rng, arrays, node):
    other = int(rng.integers(len(arrays["node_feat"])))
    for key in rng.choice(["node_feat", "node_opcode"], int(rng.integers(1, 3)), replace=False):
        arrays[key][[node, other]] = arrays[key][[other, node]]
    return "rows of two nodes swapped"


def _roots(rng, arrays, node):
    arrays["node_feat"][:, 0] = what = int(rng.integers(2))
    return f"is_root {what} everywhere"


_OF_NODES: tuple[Callable, ...] = (_node_size, _node_rank, _node_type, _node_list, _node_list, _node_column)
_OF_NODES += (_node_opcode, _edge, _edge, _rows, _roots)


def break_nodes(arrays: dict[str, np.ndarray], seed: int) -> tuple[dict[str, np.ndarray], str]:
    """Return arrays of a competition file with one thing changed in its graph, and in words what."""
    rng = np.random.default_rng(seed)
    names = {number: name for name, number in OPCODES.items()}
    while True:
        changed = {key: array.copy() for key, array in arrays.items()}
        node = int(rng.integers(len(changed["node_feat"])))
        opcode = names.get(int(changed["node_opcode"][node]), "unknown")
        change = _OF_NODES[rng.integers(len(_OF_NODES))]
        what = change(rng, changed, node)
        graph = ("node_feat", "node_opcode", "edge_index")
        if what and not all(np.array_equal(changed[key], arrays[key]) for key in graph):
            return changed, f"{opcode} {node}: {what}"
