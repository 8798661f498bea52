"""A small HLO module of dots and reshapes."""

from fastslow.xla.messages import PRIMITIVE_TYPES, Module


def add(computation, opcode, dims, *operands, **fields):
    """Append an f32 instruction; return its id."""
    shape = {"element_type": PRIMITIVE_TYPES["f32"], "dimensions": dims}
    shape["layout"] = {"minor_to_major": list(range(len(dims)))[::-1]}
    new_id = len(computation.instructions) + 1
    computation.instructions.add(
        name=f"{opcode}.{new_id}", opcode=opcode, shape=shape, operand_ids=operands, id=new_id, **fields
    )
    return new_id


def small_module(layers=1):
    """Return a chain of dots, 8 x 4 by 4 x 4, each followed by two reshapes."""
    module = Module(name="small", entry_computation_name="main", entry_computation_id=1)
    main = module.computations.add(name="main", id=1)
    last = add(main, "parameter", (8, 4))
    for layer in range(layers):
        weight = add(main, "parameter", (4, 4), parameter_number=1 + layer)
        last = add(main, "dot", (8, 4), last, weight, dot={"lhs_contracting": [1], "rhs_contracting": [0]})
        last = add(main, "reshape", (2, 4, 4), last)
        last = add(main, "reshape", (8, 4), last)
    main.root_id = add(main, "tanh", (8, 4), last)
    return module
