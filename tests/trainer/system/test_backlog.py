from __future__ import annotations

import threading

from kittrain.system.backlog import Backlog


def test_all_is_taken_at_once_and_in_order_and_the_oldest_are_dropped() -> None:
    backlog = Backlog[int](3)
    for number in range(5):
        backlog.put(number)
    assert backlog.wait() == [2, 3, 4]
    assert backlog.take() == []


def test_a_thread_that_waits_gets_what_comes_and_nothing_after_the_end() -> None:
    backlog, taken = Backlog[str](9), list[list[str]]()

    def reader() -> None:
        while found := backlog.wait():
            taken.append(found)

    thread = threading.Thread(target=reader)
    thread.start()
    backlog.put("first")
    backlog.put("last")
    backlog.close()
    thread.join(60)
    assert not thread.is_alive()
    assert [one for found in taken for one in found] == ["first", "last"], "what was put before the end is not lost"
