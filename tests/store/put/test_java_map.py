"""The order of Java's HashMap, against orders that Java itself gave."""

from __future__ import annotations

from itertools import product

from store.message.hash_map import spread
from store.put.java_map import JavaMap

# Seen in stores of 4.9.7 (16 buckets) and 5.3.3 (128 buckets).
ORDER_16 = ["KEYS", "UNIQ_KEY", "CLUSTER", "TAGS"]
ORDER_128 = ["MSG_REGION", "UNIQ_KEY", "CLUSTER", "TAGS", "KEYS", "WAIT", "TRACE_ON"]


def order(capacity: int, names: list[str]) -> list[str]:
    return [name for name, _value in JavaMap(capacity, [(name, "v") for name in names]).ordered()]


def test_the_order_is_that_of_the_buckets() -> None:
    added_last = ["UNIQ_KEY", "CLUSTER"]  # of one bucket in both
    assert order(16, sorted(set(ORDER_16) - set(added_last)) + added_last) == ORDER_16
    assert order(128, sorted(set(ORDER_128) - set(added_last)) + added_last) == ORDER_128


def test_inside_a_bucket_entries_keep_their_order_and_a_replaced_one_keeps_its_place() -> None:
    assert spread("Aa") == spread("BB")
    assert order(16, ["BB", "Aa"]) == ["BB", "Aa"]
    entries = JavaMap(16, [("BB", "1"), ("Aa", "2")])
    entries.put("BB", "3")
    assert entries.ordered() == [("BB", "3"), ("Aa", "2")]
    entries.put("BB", entries.pop("BB"))
    assert entries.ordered() == [("Aa", "2"), ("BB", "3")]


def test_the_table_doubles_above_three_quarters_and_never_shrinks() -> None:
    entries = JavaMap(16, [(f"n{number}", "v") for number in range(12)])
    assert entries.capacity == 16
    entries.put("n12", "v")
    assert entries.capacity == 32
    del entries["n12"], entries["n11"]
    assert entries.capacity == 32


def test_a_ninth_entry_in_a_bucket_doubles_a_small_table() -> None:
    names = [name for name in (f"k{number}" for number in range(2000)) if spread(name) & 15 == 3][:9]
    assert JavaMap(16, [(name, "v") for name in names[:8]]).capacity == 16
    assert JavaMap(16, [(name, "v") for name in names]).capacity == 32


def test_nine_entries_in_a_bucket_of_a_large_table_are_a_tree_whose_root_comes_first() -> None:
    names = ["".join(parts) for parts in product(("Aa", "BB"), repeat=4)]  # all of one hash
    assert order(128, names[:8]) == names[:8]
    assert order(128, names[:9]) == [names[3], *names[:3], *names[4:9]]
