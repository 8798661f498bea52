"""Elements, bytes and minor-most dimension of tensors."""

import math

import numpy as np

from fastslow.competition import node_columns
from fastslow.competition.tensors import minor_dimension, num_elements, tensor_bytes

DIMS = np.array([[8, 4, 2, 0, 0, 0], [7, 1, 0, 0, 0, 0], [0] * 6])
LAYOUTS = np.array([[-1] * 6, [0, 2, 1, -1, -1, -1], [1, 0, -1, -1, -1, -1]])


def test_elements_and_bytes():
    assert num_elements(DIMS).tolist() == [64, 7, 1]
    assert tensor_bytes(DIMS, np.array([2, 4, 4])).tolist() == [128, 28, 0]


def test_the_product_of_six_sizes_does_not_overflow():
    dims = np.full((1, 1, 6), 1000, np.int64)
    assert tensor_bytes(dims, np.array([[8]])).tolist() == [[8 * math.prod(dims.ravel().tolist())]]


def test_the_minor_dimension_is_the_first_of_the_layout_or_the_last_of_the_shape():
    assert minor_dimension(DIMS[:2, None], LAYOUTS).tolist() == [[2, 0, 1], [1, 0, 1]]
    assert minor_dimension(DIMS[2], LAYOUTS[0]) == -1


def test_axes_of_a_convolution_are_named_by_role():
    names = [[node_columns.COLUMN_NAMES[column] for column in pair] for pair in node_columns.CONVOLUTION_AXES]
    assert names == [
        ["output_batch", "output_feature"],
        ["input_batch", "input_feature"],
        ["kernel_input_feature", "kernel_output_feature"],
    ]
