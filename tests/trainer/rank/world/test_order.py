"""The data's order: each sample exactly once, for any sequence of world sizes."""

from __future__ import annotations

from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from kittrain.rank.world.order import Cursor, Order, rank_share

Worlds = list[tuple[int, int]]


@given(
    samples=st.integers(1, 60),
    batch=st.integers(1, 70),
    seed=st.integers(0, 2**40),
    epochs=st.integers(1, 3),
    worlds=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 8)), max_size=6),
)
def test_each_sample_of_each_epoch_once_in_the_same_batches(
    samples: int, batch: int, seed: int, epochs: int, worlds: Worlds
) -> None:
    order = Order(samples=samples, batch=batch, seed=seed)
    straight = [order.ids(span) for span in order.spans(Cursor(), epochs)]
    cursor, batches = Cursor(), []
    for size, steps in [*worlds, (4, 10**6)]:  # a world of this size takes some steps, then the next one continues
        for span, _ in zip(order.spans(cursor, epochs), range(steps), strict=False):
            parts = [rank_share(order.ids(span), rank, size) for rank in range(size)]
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
            assert len(parts[0]) == max(map(len, parts))
            batches.append([sample for part in parts for sample in part])
            cursor = order.after(span)
            assert order.step(cursor) == len(batches)
    assert batches == straight
    assert cursor == Cursor(epochs)
    for epoch in range(epochs):
        of_epoch = batches[epoch * order.steps_per_epoch : (epoch + 1) * order.steps_per_epoch]
        assert sorted(chain(*of_epoch)) == list(range(samples))


def test_orders_depend_on_epoch_and_seed_and_are_stable() -> None:
    order = Order(samples=10, batch=10, seed=0)
    first, second = (order.ids(span) for span in order.spans(Cursor(), 2))
    assert first == [9, 5, 2, 0, 6, 3, 8, 7, 1, 4]  # on all machines and versions
    assert first != second
    assert first != Order(samples=10, batch=10, seed=1).ids(next(order.spans(Cursor(), 1)))


def test_different_orders_have_different_fingerprints() -> None:
    orders = [Order(samples=9, batch=3), Order(samples=9, batch=4), Order(samples=9, batch=3, seed=1)]
    prints = sorted(order.fingerprint for order in orders)
    assert all(a != b for a, b in pairwise(prints))
