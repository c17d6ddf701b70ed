"""A HashMap's table with its trees: in which order Java lists entries once nine of them have met in one bucket.

Implements: java.util.HashMap: putVal, resize, treeifyBin, TreeNode (treeify, putTreeVal, split, moveRootToFront)
A tree's nodes stay a list, and that is what is iterated over: its root goes to the front whenever it changes, a new
node comes behind its parent. Entries that were taken out again are not known here: one that was in a tree may matter.
"""

from __future__ import annotations

from collections.abc import Iterable

from store.message.hash_map import BUCKET_ENTRIES_MAX, TREE_CAPACITY_MIN, outgrows
from store.message.properties import utf16_sort_key

UNTREEIFY = 6


class _Node:
    """An entry; the links of the tree only while its bucket is one."""

    __slots__ = ("hash", "key", "left", "order", "parent", "red", "right")

    def __init__(self, key: str, hashed: int) -> None:
        self.key = key
        self.hash = hashed - (1 << 32) if hashed >> 31 else hashed  # trees compare hashes as Java ints
        self.order = utf16_sort_key(key)
        self.unlink()

    def unlink(self) -> None:
        self.red = False
        self.parent: _Node | None = None
        self.left: _Node | None = None
        self.right: _Node | None = None

    def is_left_of(self, other: _Node) -> bool:
        return (self.hash, self.order) < (other.hash, other.order)


class _Bucket:
    """Entries in the order of iteration, perhaps with a tree over them."""

    def __init__(self, nodes: list[_Node]) -> None:
        self.nodes = nodes
        self.root: _Node | None = None

    def add(self, node: _Node) -> None:
        if self.root is None:
            self.nodes.append(node)
            return
        parent = self._attach(node)
        self.nodes.insert(self.nodes.index(parent) + 1, node)
        self._root_to_front()

    def treeify(self) -> None:
        self.root = None
        for node in self.nodes:
            node.unlink()
        for node in list(self.nodes):
            if self.root is None:
                self.root = node
            else:
                self._attach(node)
        self._root_to_front()

    def split(self, bit: int) -> tuple[_Bucket, _Bucket]:
        """Return the bucket's two halves in a table twice as large."""
        halves = [_Bucket([node for node in self.nodes if bool(node.hash & bit) is high]) for high in (False, True)]
        if self.root is None:
            return halves[0], halves[1]
        for half, other in (halves, reversed(halves)):
            if len(half.nodes) <= UNTREEIFY:
                continue
            if other.nodes:
                half.treeify()
            else:
                half.root = self.root
        return halves[0], halves[1]

    def _root_to_front(self) -> None:
        assert self.root is not None
        self.nodes.remove(self.root)
        self.nodes.insert(0, self.root)

    def _attach(self, node: _Node) -> _Node:
        """Put a node below its parent, and balance; the parent it got at first."""
        node.unlink()
        below = self.root
        assert below is not None
        while True:
            parent, is_left = below, node.is_left_of(below)
            below = parent.left if is_left else parent.right
            if below is None:
                break
        node.parent = parent
        if is_left:
            parent.left = node
        else:
            parent.right = node
        self._balance(node)
        return parent

    def _balance(self, node: _Node) -> None:
        """Balance the tree after an insertion, like HashMap.balanceInsertion."""
        node.red = True
        while (parent := node.parent) is not None and parent.red and (grand := parent.parent) is not None:
            is_left = parent is grand.left
            uncle = grand.right if is_left else grand.left
            if uncle is not None and uncle.red:
                uncle.red = parent.red = False
                grand.red = True
                node = grand
                continue
            if node is (parent.right if is_left else parent.left):
                self._rotate(parent, left=is_left)
                parent = node
            parent.red = False
            grand.red = True
            self._rotate(grand, left=not is_left)
            return
        if node.parent is None:
            node.red = False
            self.root = node

    def _rotate(self, node: _Node, *, left: bool) -> None:
        """rotateLeft, rotateRight: the child on the other side takes the node's place."""
        child = node.right if left else node.left
        assert child is not None
        inner = child.left if left else child.right
        if left:
            node.right, child.left = inner, node
        else:
            node.left, child.right = inner, node
        if inner is not None:
            inner.parent = node
        child.parent, node.parent = node.parent, child
        above = child.parent
        if above is None:
            self.root = child
            child.red = False
        elif above.left is node:
            above.left = child
        else:
            above.right = child


class _Table:
    """The table of a HashMap."""

    def __init__(self, capacity: int) -> None:
        self.buckets: list[_Bucket] = [_Bucket([]) for _ in range(capacity)]
        self.size = 0

    def put(self, node: _Node) -> None:
        bucket = self.buckets[node.hash & (len(self.buckets) - 1)]
        bucket.add(node)
        if bucket.root is None and len(bucket.nodes) > BUCKET_ENTRIES_MAX:
            if len(self.buckets) < TREE_CAPACITY_MIN:
                self.resize()
            else:
                bucket.treeify()
        self.size += 1
        if outgrows(self.size, len(self.buckets)):
            self.resize()

    def resize(self) -> None:
        pairs = [bucket.split(len(self.buckets)) for bucket in self.buckets]
        self.buckets = [low for low, _ in pairs] + [high for _, high in pairs]


def ordered(entries: Iterable[tuple[str, int]], first_capacity: int, capacity: int) -> list[str]:
    """The names of (name, hash) as Java iterates over them, put in that order; `capacity` is what the table has now."""
    table = _Table(first_capacity)
    for name, hashed in entries:
        table.put(_Node(name, hashed))
    while len(table.buckets) < capacity:
        table.resize()
    return [node.key for bucket in table.buckets for node in bucket.nodes]
