"""A module is simplified as the compiler does before layout assignment."""

import numpy as np

from fastslow.hlo.graph_arrays import graph_arrays
from fastslow.hlo.messages import Module
from fastslow_programs.program.simplify import simplify
from helpers.cases import cases
from helpers.dot_module import add, rich_module, small_module

CONTRACT = {"dot": {"lhs_contracting": [1], "rhs_contracting": [0]}}


def module(form):
    """Two dots and a tanh: as they are, between instructions that do nothing, or in calls of one another."""
    own = Module(name="m", entry_computation_name="main", entry_computation_id=9)
    if form == "calls":
        inner = own.computations.add(name="inner", id=1)
        inner.root_id = add(inner, "tanh", (8, 8), add(inner, "parameter", (8, 8)))
        outer = own.computations.add(name="outer", id=2)
        weight = add(outer, "parameter", (8, 8), parameter_number=1)  # before the first
        product = add(outer, "dot", (8, 8), add(outer, "parameter", (8, 8)), weight, **CONTRACT)
        outer.root_id = add(outer, "call", (8, 8), product, called_computation_ids=[1])
    main = own.computations.add(name="main", id=9)
    last, weight = add(main, "parameter", (8, 8)), add(main, "parameter", (8, 8), parameter_number=1)
    for _ in range(2):
        if form == "calls":
            last = add(main, "call", (8, 8), last, weight, called_computation_ids=[2])
            continue
        if form == "nothing":
            last = add(main, "transpose", (8, 8), add(main, "reshape", (8, 8), last), dimensions=[0, 1])
        last = add(main, "tanh", (8, 8), add(main, "dot", (8, 8), last, weight, **CONTRACT))
    main.root_id = add(main, "reshape", (8, 8), last) if form == "nothing" else last
    return own


@cases("form", ["nothing", "calls"])
def test_what_does_nothing_leaves_the_graph_of_the_program_without_it(form):
    found, wanted = graph_arrays(simplify(module(form))), graph_arrays(module("plain"))
    assert len(graph_arrays(module(form))["node_opcode"]) > len(wanted["node_opcode"])
    for key in ("node_opcode", "node_feat", "edge_index"):
        np.testing.assert_array_equal(found[key], wanted[key])
    names = [i.name for c in simplify(module(form)).computations for i in c.instructions]
    assert len(set(names)) == len(names)


@cases("make", [rich_module, small_module])
def test_nothing_else_is_changed(make):
    """Reshapes and transposes that move something, and computations that a loop calls."""
    before = make()
    assert simplify(before) == make() == before
