"""The compiled parts of the search for sharding problems (numba): message passing, moves, parts, repair.

A forest is two arrays: ``order``, groups that induce it, parents first, and ``up``, for each the position of
the link to its parent, -1 for a root. ``arrays`` are those of
:class:`~fastslow_placement.sharding.tied_strategies.GroupArrays`, ``work`` is a :class:`Workspace`.
All is in one file, since numba looks at the time of a function's own file alone to see that it is stale.
"""

import heapq
from typing import NamedTuple

import numpy as np

from fastslow_placement.base.jit import njit

CEILING = 1e14  # forbidden pairs count as this in messages, which double precision can still add up
_LEVELS = (4.0, 2.0, 1.4)  # factors of the prices' level from try to try
_SPREAD = 0.5  # of the logarithm of a price's random factor
_MANY = 64  # a neighbour of more links waits until it comes to the top of the heap


class Workspace(NamedTuple):
    """Memory that the searches of one problem share.

    Args:
        index: (G,) position of each group among those that change, -1 for others.
        blocked: (G,) neighbours inside the forest: two make a cycle, or join two trees.
        roots: (G,) a permutation of the groups.
        step: (T + 1,) zeros.
        usage: (T,) bytes in use where something is tried.
    """

    index: np.ndarray
    blocked: np.ndarray
    roots: np.ndarray
    step: np.ndarray
    usage: np.ndarray

    @classmethod
    def of(cls, groups: int, times: int) -> "Workspace":
        """Return the memory for a number of groups and of times."""
        absent, zeros = np.full(groups, -1), np.zeros(groups, np.int64)
        return cls(absent, zeros, np.arange(groups), np.zeros(times + 1), np.zeros(times))


@njit(cache=True)
def send(arrays, own, weight, at, to, forward):
    """Send messages from each group to those ahead of it; return the sum of all that was taken off.

    Args:
        arrays: The groups.
        own: (S,) costs of options.
        weight: (G,) share of a group's costs that a message carries.
        at: (L + 1,) where the messages of each link begin.
        to: The messages to each link's own group; changed.
        forward: Whether groups of higher numbers are ahead.
    """
    count, bound, first = len(weight), 0.0, arrays.first
    for number in range(count):
        group = number if forward else count - 1 - number
        total = own[first[group] : first[group + 1]].copy()
        begin, end = arrays.begins[group], arrays.begins[group + 1]
        for link in range(begin, end):
            total += to[at[link] : at[link + 1]]
        smallest = total.min()
        bound += smallest
        total = weight[group] * (total - smallest)
        for link in range(begin, end):
            if (arrays.other[link] > group) != forward:
                continue
            sent = to[at[arrays.back[link]] : at[arrays.back[link] + 1]]
            sent[:] = np.inf
            row = arrays.starts[link]
            for option in range(len(total)):
                cost = total[option] - to[at[link] + option]
                for theirs in range(len(sent)):
                    sent[theirs] = min(sent[theirs], min(arrays.tables[row + theirs], CEILING) + cost)
                row += len(sent)
            least = sent.min()
            sent -= least
            bound += least
    return bound


@njit(cache=True)
def decide(arrays, own, at, to):
    """Choose in order: exact costs to the groups that have chosen, messages from those that have not."""
    decision = np.zeros(len(arrays.held), np.int64)
    for group in range(len(decision)):
        cost = own[arrays.first[group] : arrays.first[group + 1]].copy()
        for link in range(arrays.begins[group], arrays.begins[group + 1]):
            other = arrays.other[link]
            if other < group:
                row = arrays.starts[arrays.back[link]] + decision[other] * len(cost)
                cost += np.minimum(arrays.tables[row : row + len(cost)], CEILING)
            else:
                cost += to[at[link] : at[link + 1]]
        decision[group] = cost.argmin()
    return decision


@njit(cache=True)
def _nodes(arrays, group):
    return arrays.nodes[arrays.members[group] : arrays.members[group + 1]]


@njit(cache=True)
def _pay(arrays, group, price, own):
    """Add to each option of a group what its bytes cost, given a price of a byte for each of its nodes."""
    start = arrays.held[group]
    for each in price:
        if each != 0.0:
            own += each * arrays.memory[start : start + len(own)]
        start += len(own)


@njit(cache=True)
def priced(arrays, toll):
    """Return the costs of all groups' options where a node pays a toll (N,) per byte: (S,)."""
    costs = arrays.costs.copy()
    for group in range(len(arrays.held)):
        own = costs[arrays.first[group] : arrays.first[group + 1]]
        _pay(arrays, group, toll[_nodes(arrays, group)], own)
    return costs


@njit(cache=True)
def grow(arrays, work, size, rng):
    """Return order and up of up to ``size`` random groups that induce a forest.

    The set grows from random roots along links, so that it is connected where possible.
    """
    index, blocked, roots = work.index, work.blocked, work.roots
    order, up = np.empty(size, np.int64), np.empty(size, np.int64)
    count = 0
    for number in range(len(roots)):
        if count == size:
            break
        pick = rng.integers(number, len(roots))
        roots[number], roots[pick] = roots[pick], roots[number]
        if blocked[roots[number]] or index[roots[number]] >= 0:
            continue
        rim = [(roots[number], np.int64(-1))]
        while len(rim) and count < size:
            pick = rng.integers(0, len(rim))
            group, link = rim[pick]
            rim[pick] = rim[-1]
            rim.pop()
            if index[group] >= 0 or blocked[group] > (link >= 0):
                continue
            index[group], order[count], up[count] = count, group, link
            count += 1
            for position in range(arrays.begins[group], arrays.begins[group + 1]):
                other = arrays.other[position]
                blocked[other] += 1
                if index[other] < 0 and blocked[other] == 1:
                    rim.append((other, arrays.back[position]))
    for group in order[:count]:
        index[group] = -1
        blocked[arrays.other[arrays.begins[group] : arrays.begins[group + 1]]] = 0
    return order[:count], up[:count]


@njit(cache=True)
def _around(arrays, index, decision, group, own):
    """Write the costs of a group's options into ``own``, neighbours that do not change as decided."""
    own[:] = arrays.costs[arrays.first[group] : arrays.first[group + 1]]
    for link in range(arrays.begins[group], arrays.begins[group + 1]):
        other = arrays.other[link]
        if index[other] < 0:
            row = arrays.starts[arrays.back[link]] + decision[other] * len(own)
            own += arrays.tables[row : row + len(own)]


@njit(cache=True)
def solve(arrays, work, decision, order, up, toll, scale):
    """Return the best options of a forest's groups, (F,), all others as decided.

    Args:
        arrays: The groups.
        work: Memory.
        decision: (G,) options of all groups.
        order: (F,) groups of the forest.
        up: (F,) links to their parents.
        toll: (N,) price of a byte over each node's lifetime.
        scale: (F,) factor of the price, for each group of the forest.
    """
    count, first, index = len(order), arrays.first, work.index
    at, picks = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    for place in range(count):
        group = order[place]
        index[group] = place
        width = 0 if up[place] < 0 else first[arrays.other[up[place]] + 1] - first[arrays.other[up[place]]]
        at[place + 1] = at[place] + first[group + 1] - first[group]
        picks[place + 1] = picks[place] + width
    total, pick = np.empty(at[count]), np.empty(picks[count], np.int64)
    for place in range(count):
        group, own = order[place], total[at[place] : at[place + 1]]
        _around(arrays, index, decision, group, own)
        _pay(arrays, group, scale[place] * toll[_nodes(arrays, group)], own)
    for place in range(count - 1, -1, -1):
        if up[place] >= 0:
            parent = index[arrays.other[up[place]]]
            above, chosen = total[at[parent] : at[parent + 1]], pick[picks[place] : picks[place + 1]]
            least = np.full(len(above), np.inf)
            row = arrays.starts[up[place]]
            for option in range(at[place + 1] - at[place]):
                cost = total[at[place] + option]
                for theirs in range(len(above)):
                    both = cost + arrays.tables[row + theirs]
                    if both < least[theirs]:
                        least[theirs], chosen[theirs] = both, option
                row += len(above)
            above += least
    best = np.empty(count, np.int64)
    for place in range(count):
        if up[place] < 0:
            best[place] = total[at[place] : at[place + 1]].argmin()
        else:
            best[place] = pick[picks[place] + best[index[arrays.other[up[place]]]]]
    index[order] = -1
    return best


@njit(cache=True)
def extra_cost(arrays, work, decision, groups, options):
    """Return how much more it costs to give some groups other options, whichever links are between them."""
    index, first, extra = work.index, arrays.first, 0.0
    for place in range(len(groups)):
        index[groups[place]] = place
    for place in range(len(groups)):
        group, new = groups[place], options[place]
        old = decision[group]
        extra += arrays.costs[first[group] + new] - arrays.costs[first[group] + old]
        for link in range(arrays.begins[group], arrays.begins[group + 1]):
            other = arrays.other[link]
            before = after = decision[other]
            if index[other] >= 0:
                if other < group:
                    continue
                after = options[index[other]]
            if new != old or before != after:
                row, width = arrays.starts[link], first[other + 1] - first[other]
                extra += arrays.tables[row + new * width + after] - arrays.tables[row + old * width + before]
    index[groups] = -1
    return extra


@njit(cache=True)
def use(arrays, work, usage, decision, groups, options):
    """Write the bytes in use with other options of some groups into ``work.usage``; return where.

    Args:
        arrays: The groups.
        work: Memory.
        usage: (T,) bytes in use now.
        decision: (G,) options of all groups now.
        groups: Groups that change.
        options: Their new options.

    Returns:
        First and last time, half-open, whose usage is written, and the peak there; nothing else changes.
    """
    low, high, step = len(usage), 0, work.step
    for place in range(len(groups)):
        group = groups[place]
        old, new = decision[group], options[place]
        if new == old:
            continue
        row, choices = arrays.held[group], arrays.first[group + 1] - arrays.first[group]
        for member in range(arrays.members[group], arrays.members[group + 1]):
            node = arrays.nodes[member]
            begin, end = arrays.spans[node, 0], arrays.spans[node, 1]
            more = arrays.memory[row + new] - arrays.memory[row + old]
            row += choices
            if begin < end and more != 0.0:
                step[begin] += more
                step[end] -= more
                low, high = min(low, begin), max(high, end)
    more, peak = 0.0, -np.inf
    for time in range(low, high):
        more += step[time]
        step[time] = 0.0
        work.usage[time] = usage[time] + more
        peak = max(peak, work.usage[time])
    if low < high:
        step[high] = 0.0
    return low, high, peak


@njit(cache=True)
def move(arrays, work, decision, usage, limit, toll, count, largest, temperature, rng):
    """Make random moves of a valid decision, in place (simulated annealing).

    For each forest the level of the prices is bisected: lower while the result fits in memory, higher while
    it does not. The cheapest that fits is taken if it is not much worse. Prices are perturbed by one factor
    for the forest or by one for each of its groups.

    Args:
        arrays: The groups.
        work: Memory.
        decision: (G,) a valid decision; changed.
        usage: (T,) its bytes in use; changed.
        limit: Bytes that may be in use.
        toll: (N,) price of a byte over each node's lifetime.
        count: Number of moves.
        largest: Maximum number of groups that a move frees.
        temperature: Mean cost by which a move may be worse.
        rng: Generator.

    Returns:
        The cheapest decision on the way.
    """
    change = lowest = 0.0
    best = decision.copy()
    for number in range(count):
        size = min(int(largest * rng.random() ** 3) + 2, len(decision))
        order, up = grow(arrays, work, size, rng)
        scale = np.full(len(order), np.exp(rng.normal(0.1, _SPREAD)))
        if number % 2:
            for place in range(len(order)):
                scale[place] = np.exp(rng.normal(0.1, _SPREAD))
        kept, extra = np.zeros(0, np.int64), np.inf
        for step in _LEVELS:
            tried = solve(arrays, work, decision, order, up, toll, scale)
            fits = use(arrays, work, usage, decision, order, tried)[2] <= limit
            if fits:
                own = extra_cost(arrays, work, decision, order, tried)
                if own < extra:
                    kept, extra = tried, own
            scale *= 1 / step if fits else step
        if extra < np.inf and (extra <= 0.0 or extra <= temperature * rng.exponential()):
            low, high, _ = use(arrays, work, usage, decision, order, kept)
            usage[low:high] = work.usage[low:high]
            decision[order] = kept
            change += extra
            if change < lowest:
                lowest = change
                best[:] = decision
    return best


@njit(cache=True)
def take_parts(arrays, work, base, usage, limit, other):
    """Take the cheaper parts that fit into ``base``, the most saving first; return how many."""
    members, begins, changes = np.empty(len(base), np.int64), [0], [0.0 for _ in range(0)]
    seen, count = base == other, 0
    for group in range(len(base)):
        if seen[group]:
            continue
        seen[group], members[count] = True, group
        head, count = count, count + 1
        while head < count:
            own = members[head]
            head += 1
            for beside in arrays.other[arrays.begins[own] : arrays.begins[own + 1]]:
                if not seen[beside]:
                    seen[beside], members[count] = True, beside
                    count += 1
        part = members[begins[-1] : count]
        changes.append(extra_cost(arrays, work, base, part, other[part]))
        begins.append(count)
    change, taken = np.array(changes), 0
    for number in np.argsort(change, kind="mergesort"):
        if change[number] >= 0:
            break
        part = members[begins[number] : begins[number + 1]]
        low, high, peak = use(arrays, work, usage, base, part, other[part])
        if peak <= limit:
            usage[low:high] = work.usage[low:high]
            base[part] = other[part]
            taken += 1
    return taken


@njit(cache=True)
def save_memory(arrays, work, chosen, usage, limit, least, count):
    """Make up to ``count`` changes, in place, until none of those that help now does; return their number."""
    sums = np.zeros(len(usage) + 1)
    for time in range(len(usage)):
        sums[time + 1] = sums[time] + max(usage[time] - limit, 0.0)
    heap = [(0.0, 0, 0)]
    heap.pop()
    if sums[-1] <= 0:
        return 0
    for group in range(len(chosen)):
        nodes = _nodes(arrays, group)
        toll = sums[arrays.spans[nodes, 1]] - sums[arrays.spans[nodes, 0]]
        price, option = _offer(arrays, work.index, chosen, group, toll, least)
        if option >= 0:
            heap.append((price, group, option))
    heapq.heapify(heap)
    made, one, new = 0, np.zeros(1, np.int64), np.zeros(1, np.int64)
    while len(heap) and made < count:
        _, group, _ = heapq.heappop(heap)
        price, option = _offer(arrays, work.index, chosen, group, _excess(arrays, usage, limit, group), least)
        if option < 0:
            continue
        if len(heap) and price > heap[0][0]:
            heapq.heappush(heap, (price, group, option))
            continue
        one[0], new[0] = group, option
        low, high, _ = use(arrays, work, usage, chosen, one, new)
        change = 0.0
        for time in range(low, high):
            change += max(work.usage[time] - limit, 0.0) - max(usage[time] - limit, 0.0)
        if change >= 0:
            continue
        usage[low:high] = work.usage[low:high]
        chosen[group] = option
        made += 1
        for other in np.append(arrays.other[arrays.begins[group] : arrays.begins[group + 1]], group):
            if other == group or arrays.begins[other + 1] - arrays.begins[other] <= _MANY:
                toll = _excess(arrays, usage, limit, other)
                price, option = _offer(arrays, work.index, chosen, other, toll, least)
                if option >= 0:
                    heapq.heappush(heap, (price, other, option))
    return made


@njit(cache=True)
def _excess(arrays, usage, limit, group):
    """Return the sum of the excess over the lifetime of each of a group's nodes."""
    nodes = _nodes(arrays, group)
    toll = np.zeros(len(nodes))
    for place in range(len(nodes)):
        for time in range(arrays.spans[nodes[place], 0], arrays.spans[nodes[place], 1]):
            toll[place] += max(usage[time] - limit, 0.0)
    return toll


@njit(cache=True)
def _offer(arrays, index, chosen, group, toll, least):
    """Return cost per byte and option of the cheapest change that saves memory; -1 if none does."""
    own, choices = chosen[group], arrays.first[group + 1] - arrays.first[group]
    memory, cost = np.zeros(choices), np.empty(choices)
    _pay(arrays, group, toll, memory)
    saved = memory[own] - memory
    if saved.max() <= 0:
        return np.inf, -1
    _around(arrays, index, chosen, group, cost)
    best, cheapest = -1, np.inf
    for option in range(choices):
        if saved[option] > 0:
            price = max(cost[option] - cost[own], least) / saved[option]
            if price < cheapest:
                best, cheapest = option, price
    return cheapest, best


@njit(cache=True)
def largest_forest(arrays, ranked):
    """Return which groups were taken, each where it joins no tree twice: (G,)."""
    above, inside = np.arange(len(arrays.held)), np.zeros(len(arrays.held), np.bool_)
    for group in ranked:
        trees = [np.int64(0) for _ in range(0)]
        for other in arrays.other[arrays.begins[group] : arrays.begins[group + 1]]:
            if inside[other]:
                while above[other] != other:
                    above[other] = above[above[other]]
                    other = above[other]
                if other in trees:
                    break
                trees.append(other)
        else:
            inside[group] = True
            for tree in trees:
                above[tree] = group
    return inside


@njit(cache=True)
def rooted(arrays, inside):
    """Return the groups inside, which induce a forest, parents first, and the link of each to its parent."""
    order, up = np.empty(inside.sum(), np.int64), np.empty(inside.sum(), np.int64)
    seen, count = ~inside, 0
    for root in range(len(inside)):
        if seen[root]:
            continue
        seen[root], order[count], up[count] = True, root, -1
        head, count = count, count + 1
        while head < count:
            group = order[head]
            head += 1
            for link in range(arrays.begins[group], arrays.begins[group + 1]):
                other = arrays.other[link]
                if not seen[other]:
                    seen[other], order[count], up[count] = True, other, arrays.back[link]
                    count += 1
    return order, up
