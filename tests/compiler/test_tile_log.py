"""Tile candidates from a synthetic log, and kernels as separate modules."""

import pytest

from fastslow.hlo.messages import Module
from fastslow_programs.compiler.tile_log import DOES_NOT_FIT, kernel_module, read_candidates
from helpers.dot_module import add

# two threads write at once: 41 a convolution and then another, 42 a loop fusion
LOG = """\
W1121 10:00:00.000001      41 cpu.cc:7] something else
I1121 10:00:00.000002      41 spatial_major_convolution.cc:99] SpatialMajorConvolution::\
ComputeWindowConfigInternal called for fusion.1
I1121 10:00:00.000003      42 fusion_emitter.cc:12] FusionEmitter constructor for fusion.2
I1121 10:00:00.000004      41 spatial_major_convolution.cc:50] Generated Candidate: out=8,1,2 kern=4,4 \
cycles=500 vmem_needed=100
I1121 10:00:00.000005      42 fusion_emitter.cc:13] Potential window config [8, 128] cost total_cycles 70
I1121 10:00:00.000006      41 spatial_major_convolution.cc:50] Generated Candidate: out=4,1,2 kern=4,4 \
cycles=300 vmem_needed=100
I1121 10:00:00.000007      41 spatial_major_convolution.cc:50] Generated Candidate: out=8,1,2 kern=4,4 \
cycles=400 vmem_needed=100
a line of another sort
I1121 10:00:00.000008      41 spatial_major_convolution.cc:50] Generated Candidate: out=64,64 kern=4,4 \
cycles={too_large} vmem_needed=9999
I1121 10:00:00.000009      42 fusion_emitter.cc:13] Potential window config [16, 128] cost total_cycles 60
I1121 10:00:00.000010      41 spatial_major_convolution.cc:60] SpatialMajorConvolution::\
ComputeWindowConfigInternal returning config: kernel cycles=300
I1121 10:00:00.000011      42 fusion_emitter.cc:14] ComputeWindowConfigInternal Selected Settings for HLO: \
fusion.2 | window estimated_cycles: 60
I1121 10:00:00.000012      41 spatial_major_convolution.cc:99] SpatialMajorConvolution::\
ComputeWindowConfigInternal called for fusion.1
I1121 10:00:00.000013      41 spatial_major_convolution.cc:50] Generated Candidate: out=2 kern=1 cycles=1 v
I1121 10:00:00.000014      41 spatial_major_convolution.cc:60] SpatialMajorConvolution::\
ComputeWindowConfigInternal returning config: kernel cycles=1
I1121 10:00:00.000015      43 spatial_major_convolution.cc:50] Generated Candidate: out=2 kern=1 cycles=1 v
"""


def test_interleaved_log_lines_are_separated_by_thread():
    kernels = read_candidates(LOG.format(too_large=DOES_NOT_FIT).splitlines(keepends=True))
    assert set(kernels) == {"fusion.1", "fusion.2"}
    convolution, loop = kernels["fusion.1"], kernels["fusion.2"]
    assert convolution.cycles == {((4, 4), (8, 1, 2)): 400, ((4, 4), (4, 1, 2)): 300}, "the first look"
    assert convolution.chosen == 300
    assert loop.cycles == {((), (8, 128)): 70, ((), (16, 128)): 60} and loop.chosen == 60
    just_fits = read_candidates(LOG.format(too_large=DOES_NOT_FIT - 1).splitlines())["fusion.1"]
    assert just_fits.cycles == convolution.cycles | {((4, 4), (64, 64)): DOES_NOT_FIT - 1}


def test_a_log_has_only_whole_kernels():
    other = "I1121 10:00:00.1 4 other.cc:1] Generated Candidate: out=1 kern=1 cycles=1"
    assert read_candidates(["", other]) == {}
    lines = LOG.format(too_large=DOES_NOT_FIT).splitlines()
    cut = next(n for n, line in enumerate(lines) if "returning config" in line)
    assert read_candidates(lines[:cut]) == {}
    assert set(read_candidates(lines[: cut + 1])) == {"fusion.1"}


@pytest.fixture
def optimised():
    """Return a fusion whose computation calls another one, and an unused computation."""
    module = Module(name="whole", entry_computation_name="main", entry_computation_id=3)
    adder = module.computations.add(name="adder", id=1)
    add(adder, "add", ())
    fused = module.computations.add(name="fused", id=2)
    add(fused, "reduce", (4,), called_computation_ids=[1])
    main = module.computations.add(name="main", id=3)
    add(main, "fusion", (4,), called_computation_ids=[2])
    add(main, "call", (4,), called_computation_ids=[4])
    module.computations.add(name="other", id=4)
    return module


def test_a_kernel_is_a_module_of_what_it_calls(optimised):
    kernel = kernel_module(optimised, "fusion.1")
    assert [c.name for c in kernel.computations] == ["adder", "fused"]
    assert (kernel.name, kernel.entry_computation_name, kernel.entry_computation_id) == (
        "fusion.1",
        "fused",
        2,
    )
    assert kernel.computations[1] == optimised.computations[1]


@pytest.mark.parametrize("name", ["fusion.9", "call.2"])
def test_only_a_fusion_is_a_kernel(optimised, name):
    with pytest.raises(KeyError):
        kernel_module(optimised, name)
