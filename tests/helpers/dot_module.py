"""Small HLO modules: dots and reshapes, one with many configurations; a loop and a convolution."""

from fastslow.hlo.messages import PRIMITIVE_TYPES, Module, ModuleTuningData

SMALL_TEXT = """
ENTRY e {
  x = f32[64,128] parameter(0)
  w = f32[128,256] parameter(1)
  d = f32[64,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  f = f32[4,16,4,64] reshape(d)
  t = f32[4,16,4,64] tanh(f)
  ROOT r = f32[4,4,4,4,64] reshape(t)
}
"""
"""A dot and two reshapes as HLO text."""


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


def varied_module(layers=1):
    """Return a chain of dots, 2 x 3 by 4 x 4 by 4 x 4, each with two reshapes and a tanh between.

    The compiler can be made to take 2 x 24 x 24 configurations: of the dots, and of both kinds of reshapes.
    """
    module = Module(name="varied", entry_computation_name="main", entry_computation_id=1)
    main = module.computations.add(name="main", id=1)
    last = add(main, "parameter", (2, 3, 4, 4))
    for layer in range(layers):
        weight = add(main, "parameter", (4, 4), parameter_number=1 + layer)
        contract = {"lhs_contracting": [3], "rhs_contracting": [0]}
        last = add(main, "dot", (2, 3, 4, 4), last, weight, dot=contract)
        last = add(main, "tanh", (2, 3, 4, 2, 2), add(main, "reshape", (2, 3, 4, 2, 2), last))
        last = add(main, "reshape", (2, 3, 4, 4), last)
    main.root_id = add(main, "tanh", (2, 3, 4, 4), last)
    return module


def rich_module():
    """Two computations: a loop's body with a dot, and a convolution, reshapes and a batched dot around it."""
    module = Module(name="rich", entry_computation_name="main", entry_computation_id=2)
    body = module.computations.add(name="body", id=1)
    state = add(body, "parameter", (8, 4))
    weight = add(body, "constant", (4, 4))
    contract = {"lhs_contracting": [1], "rhs_contracting": [0]}
    body.root_id = add(body, "dot", (8, 4), state, weight, dot=contract)
    main = module.computations.add(name="main", id=2)
    image = add(main, "parameter", (2, 6, 6, 3))
    kernel = add(main, "parameter", (3, 3, 3, 5), parameter_number=1)
    numbers = {
        "input_batch": 0,
        "input_spatial": [1, 2],
        "input_feature": 3,
        "kernel_spatial": [0, 1],
        "kernel_input_feature": 2,
        "kernel_output_feature": 3,
        "output_batch": 1,
        "output_spatial": [2, 3],
        "output_feature": 0,
    }
    sizes = {"size": 3, "stride": 1, "window_dilation": 1, "base_dilation": 1}
    window = {"dimensions": [sizes, sizes]}
    found = add(main, "convolution", (5, 2, 4, 4), image, kernel, convolution=numbers, window=window)
    flat = add(main, "reshape", (2, 5, 16), found)
    batched = {"lhs_contracting": [2], "rhs_contracting": [2], "lhs_batch": [0], "rhs_batch": [0]}
    product = add(main, "dot", (2, 5, 5), flat, flat, dot=batched)
    scalar = add(main, "constant", ())
    add(main, "reshape", (1,), scalar)
    start = add(main, "constant", (8, 4))
    add(main, "while", (8, 4), start, called_computation_ids=[1, 3])
    main.root_id = add(main, "reshape", (50,), product)
    condition = module.computations.add(name="condition", id=3)
    add(condition, "parameter", (8, 4))
    condition.root_id = add(condition, "constant", ())
    condition.instructions[-1].shape.element_type = PRIMITIVE_TYPES["pred"]
    return module


def measured_module(runtimes, default=None, bounds=(), layouts=(), nodes=(2,)):
    """Return the small module with measured runs, of which one is the compiler's default.

    Args:
        runtimes: Nanoseconds of each run.
        default: Position of the default.
        bounds: Of the runs of a tile kernel, the bounds of each.
        layouts: Of the runs of a layout program, the output layout of each, the same for all ``nodes``.
        nodes: The nodes whose layouts are set.
    """
    tuned = ModuleTuningData(module=small_module(), fingerprint=1)
    for number, runtime in enumerate(runtimes):
        run = tuned.runs.add(profile={"compute_time_ns": int(runtime)}, is_default=number == default)
        if len(bounds):
            run.op_config.tile_size_config.kernel_bounds[:] = bounds[number]
        for _ in nodes if len(layouts) else ():
            run.module_config.layout_config.nodes.add(tensors=[{"dims": layouts[number]}])
    if len(layouts):
        tuned.config_index_to_node[:] = nodes
    return tuned
