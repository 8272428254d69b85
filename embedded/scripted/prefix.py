"""A bounded prefix cache: how many leading tokens of a prompt were computed before.

Guarantee: `match` never claims a token that was not inserted, and the tokens held never exceed `capacity` after an
insert. A radix tree over token ids, as in SGLang's RadixAttention (Zheng et al., 2024); the least recently used leaves
go first.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

WIDTH = array("I").itemsize  # token ids are compared as bytes: a slice comparison is one memcmp


def packed(ids: Sequence[int]) -> bytes:
    """Token ids as native unsigned integers, `WIDTH` bytes each. Raises OverflowError, TypeError on anything else."""
    return array("I", ids).tobytes()


def unpacked(key: bytes) -> list[int]:
    """The token ids of a packed key."""
    return array("I", key).tolist()


@dataclass(slots=True, eq=False)
class _Node:
    key: bytes
    parent: "_Node | None"
    used: int
    children: dict[bytes, "_Node"] = field(default_factory=dict)


class PrefixCache:
    """Prefixes of at most `capacity` tokens together."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._clock = 0
        self._root = _Node(b"", None, 0)

    def clear(self) -> None:
        """Forget everything."""
        self.size = 0
        self._root = _Node(b"", None, 0)

    def match(self, key: bytes) -> int:
        """How many leading tokens of `key` are held; marks them as used."""
        _, matched = self._descend(key)
        return matched // WIDTH

    def insert(self, key: bytes) -> None:
        """Hold all tokens of `key`, evicting others where there is no room. Longer than the capacity: not held."""
        if len(key) > self.capacity * WIDTH:
            return
        node, matched = self._descend(key)
        if matched < len(key):
            rest = key[matched:]
            node.children[rest[:WIDTH]] = _Node(rest, node, self._clock)
            self.size += len(rest) // WIDTH
        if self.size > self.capacity:
            self._evict()

    def _descend(self, key: bytes) -> tuple[_Node, int]:
        """Walk down as far as `key` agrees, splitting the last edge where they part: (node, bytes matched)."""
        self._clock += 1
        node, at = self._root, 0
        while (child := node.children.get(key[at : at + WIDTH])) is not None:
            shared = _shared(child.key, key, at)
            if shared < len(child.key):
                child = self._split(child, shared)
            child.used = self._clock
            node, at = child, at + shared
        return node, at

    def _split(self, node: _Node, at: int) -> _Node:
        parent = node.parent
        assert parent is not None
        upper = _Node(node.key[:at], parent, self._clock, {node.key[at : at + WIDTH]: node})
        parent.children[node.key[:WIDTH]] = upper
        node.key, node.parent = node.key[at:], upper
        return upper

    def _evict(self) -> None:
        """Drop the oldest leaves down to nine tenths of the capacity, so that eviction is rare."""
        room = self.capacity * 9 // 10
        while self.size > room:
            for leaf in sorted(self._leaves(), key=lambda leaf: leaf.used):
                assert leaf.parent is not None
                del leaf.parent.children[leaf.key[:WIDTH]]
                self.size -= len(leaf.key) // WIDTH
                if self.size <= room:
                    return

    def _leaves(self) -> list[_Node]:
        leaves, open_nodes = [], list(self._root.children.values())
        while open_nodes:
            node = open_nodes.pop()
            if node.children:
                open_nodes.extend(node.children.values())
            else:
                leaves.append(node)
        return leaves


def _shared(edge: bytes, key: bytes, at: int) -> int:
    """Bytes of whole tokens that `edge` and `key[at:]` have in common, by bisection."""
    longest = min(len(edge), len(key) - at)
    if edge[:longest] == key[at : at + longest]:
        return longest
    low, high = 0, longest // WIDTH  # `low` tokens agree, `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        if edge[low * WIDTH : middle * WIDTH] == key[at + low * WIDTH : at + middle * WIDTH]:
            low = middle
        else:
            high = middle
    return low * WIDTH
