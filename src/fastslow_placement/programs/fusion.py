"""Fusion: clusters of operators that run as one kernel, grown by priority, and their roofline cost.

Nodes are visited by decreasing priority; each cluster is merged with the neighbour's cluster that saves most
time, where the result is legal: fusible opcodes, at most 64 operators, no cycle between clusters.
"""

import numpy as np

from fastslow_placement.programs.cost_graph import CostGraph, build, joined, topological_order
from fastslow_placement.programs.roofline import Device, names

LARGEST = 64  # operators of a cluster
_HEAVY = names(
    "dot convolution while conditional custom-call fft sort scatter gather all-reduce all-gather cholesky "
    "triangular-solve reduce-window select-and-scatter fusion dynamic-update-slice rng-bit-generator "
    "dynamic-slice infeed outfeed"
)
_ROOTS = names("dot convolution")  # may take element-wise operators into their kernel


def is_heavy(graph: CostGraph) -> np.ndarray:
    """Return which operators are not element-wise or movements of data: (N,) bool."""
    return np.array([opcode in _HEAVY for opcode in graph.opcodes])


class Clusters:
    """Clusters under construction, with the roofline time of each.

    Args:
        graph: The operators.
        device: Whose roofline gives the time of a cluster.
    """

    def __init__(self, graph: CostGraph, device: Device):
        self.graph, self.device = graph, device
        self.of = list(range(len(graph)))
        self.members = {node: [node] for node in range(len(graph))}
        self.seconds = dict(enumerate(graph.seconds.tolist()))
        self._order = list(range(len(graph)))  # clusters in topological order
        self._position = list(range(len(graph)))
        self._heavy = is_heavy(graph).tolist()
        self._root = [opcode in _ROOTS for opcode in graph.opcodes]
        self._output = graph.output_bytes.tolist()
        self._read = graph.read_bytes.tolist()
        self._flops = graph.flops.tolist()

    def visit(self, node: int) -> None:
        """Merge the node's cluster with the neighbour that saves most time and closes no cycle."""
        cluster = self.of[node]
        around = [*self.graph.producers[node], *self.graph.consumers[node]]
        best = None
        saved = 1e-12
        behind = set()
        for other in dict.fromkeys(self.of[other] for other in around if self.of[other] != cluster):
            gain = self.saving(cluster, other)
            if gain > saved and (after := self._behind(cluster, other)) is not None:
                best, saved, behind = other, gain, after
        if best is not None:
            self._merge(cluster, best, behind)

    def saving(self, first: int, second: int) -> float:
        """Return the seconds that merging two clusters saves; -inf where their kinds or sizes forbid it."""
        together = self.members[first] + self.members[second]
        heavy = [node for node in together if self._heavy[node]]
        if len(together) > LARGEST or len(heavy) > 1 or not all(self._root[node] for node in heavy):
            return -np.inf
        return self.seconds[first] + self.seconds[second] - self.cluster_seconds(together)

    def cluster_seconds(self, nodes: list[int]) -> float:
        """Return the roofline time of a cluster: FLOPs inside against bytes that enter or leave it."""
        inside = set(nodes)
        inputs = {p for node in nodes for p in self.graph.producers[node] if p not in inside}
        moved = sum(self._output[p] for p in inputs) + sum(self._read[node] for node in nodes)
        for node in nodes:
            after = self.graph.consumers[node]
            if not after or any(c not in inside for c in after):
                moved += self._output[node]
        return self.device.seconds(sum(self._flops[node] for node in nodes), moved)

    def _behind(self, one: int, other: int) -> set[int] | None:
        """Return the clusters between two in the order that the first of them leads to, itself included.

        None if a path between the two leads through a third one.
        """
        first, second = sorted((one, other), key=self._position.__getitem__)
        end = self._position[second]
        seen = {first}
        stack = [first]
        while stack:
            cluster = stack.pop()
            for node in self.members[cluster]:
                for consumer in self.graph.consumers[node]:
                    after = self.of[consumer]
                    if after == second and cluster != first:
                        return None
                    if after not in seen and self._position[after] < end:
                        seen.add(after)
                        stack.append(after)
        return seen

    def _merge(self, kept: int, other: int, behind: set[int]) -> None:
        """Merge two clusters and keep the order of clusters topological (as Pearce and Kelly 2006)."""
        begin, end = sorted((self._position[kept], self._position[other]))
        region = [cluster for cluster in self._order[begin : end + 1] if cluster not in (kept, other)]
        before = [cluster for cluster in region if cluster not in behind]
        after = [cluster for cluster in region if cluster in behind]
        self._order[begin : end + 1] = [*before, kept, *after, other]  # the last is empty from now on
        for place in range(begin, end + 1):
            self._position[self._order[place]] = place
        nodes = self.members.pop(other)
        for node in nodes:
            self.of[node] = kept
        self.members[kept] = sorted(self.members[kept] + nodes)
        del self.seconds[other]
        self.seconds[kept] = self.cluster_seconds(self.members[kept])

    def total_seconds(self) -> float:
        """Return the seconds of all clusters one after the other, without overlap."""
        return sum(self.seconds.values())


def fuse(graph: CostGraph, priorities: np.ndarray, device: Device) -> Clusters:
    """Return the clusters for these priorities.

    Args:
        graph: The operators.
        priorities: (N,) integers; nodes of a higher priority are visited first, ties in topological order.
            Nodes of priority 0 are never visited.
        device: Whose roofline gives the time of a cluster.
    """
    clusters = Clusters(graph, device)
    order = np.lexsort((np.arange(len(graph)), -np.asarray(priorities)))
    for node in order.tolist():
        if priorities[node] > 0:
            clusters.visit(node)
    return clusters


def ordered_clusters(graph: CostGraph, of: np.ndarray) -> np.ndarray:
    """Return the cluster of each operator, with clusters numbered in topological order from 0: (N,) int64.

    Args:
        graph: The N operators.
        of: (N,) any integers, equal for the operators of one cluster.

    Raises:
        DataError: There is a cycle between clusters.
    """
    of = np.unique(of, return_inverse=True)[1]
    names = [f"cluster {number}" for number in range(int(of.max()) + 1)]
    edges = np.unique(of[graph.edges].reshape(-1, 2), axis=0)
    order = topological_order(edges[edges[:, 0] != edges[:, 1]], len(names), graph.name, names)
    return np.argsort(order)[of]


def contract(graph: CostGraph, device: Device, of: np.ndarray | None = None) -> CostGraph:
    """Return the graph whose nodes are clusters; a cluster of one operator keeps its time.

    A cluster brings the co-location groups of its operators together.

    Args:
        graph: The operators.
        device: Whose roofline gives the time of a cluster.
        of: (N,) cluster of each operator; between clusters there is no cycle. By default
            :func:`single_consumer_clusters`.
    """
    of = ordered_clusters(graph, single_consumer_clusters(graph) if of is None else of)
    count = int(of.max()) + 1
    members: list[list[int]] = [[] for _ in range(count)]
    for node, cluster in enumerate(of.tolist()):
        members[cluster].append(node)
    costs = Clusters(graph, device)
    seconds = [graph.seconds[n[0]] if len(n) == 1 else costs.cluster_seconds(n) for n in members]
    heads = [max(nodes, key=lambda node: (costs._heavy[node], node)) for nodes in members]
    edges = of[graph.edges]
    edges = edges[edges[:, 0] != edges[:, 1]]
    leaves = np.ones(len(graph), bool)
    inner = of[graph.edges[:, 0]] == of[graph.edges[:, 1]]
    leaves[graph.edges[inner, 0]] = False
    leaves[graph.edges[~inner, 0]] = True
    return build(
        graph.name,
        graph.name,
        [graph.opcodes[head] for head in heads],
        [[d for d in graph.shapes[nodes[-1]] if d] for nodes in members],
        edges,
        graph.uncounted_loops,
        seconds=seconds,
        flops=np.bincount(of, graph.flops, count),
        output_bytes=np.bincount(of, graph.output_bytes * leaves, count),
        parameter_bytes=np.bincount(of, graph.parameter_bytes, count),
        read_bytes=np.bincount(of, graph.read_bytes, count),
        groups=joined(of, graph.groups)[[nodes[0] for nodes in members]],
        names=[graph.names[head] for head in heads],
    )


def single_consumer_clusters(graph: CostGraph) -> np.ndarray:
    """Return clusters that join each operator with its only consumer, unless both are heavy: (N,) int64.

    Such a merge never closes a cycle and leaves one output per cluster. It is close to what compilers always
    do, and a graph contracted by it is what is placed.
    """
    heavy = is_heavy(graph).tolist()
    of = np.arange(len(graph))
    for node in range(len(graph) - 1, -1, -1):
        after = graph.consumers[node]
        if len(after) == 1 and not (heavy[node] and heavy[of[after[0]]]):
            of[node] = of[after[0]]
            heavy[of[node]] = heavy[of[node]] or heavy[node]
    return of
