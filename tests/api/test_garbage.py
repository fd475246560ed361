"""While a graph is compiled the garbage collector looks rarely; afterwards it is as the user had it."""

import gc
import threading

import pytest

from luminal.garbage import RARELY, rare_collections


@pytest.fixture(autouse=True)
def usual():
    before = gc.get_threshold()
    gc.set_threshold(123, 4, 5)
    yield
    gc.set_threshold(*before)


def test_it_is_as_before_after_the_last_of_several() -> None:
    with rare_collections(), rare_collections():
        assert gc.get_threshold() == RARELY
    assert gc.get_threshold() == (123, 4, 5)


def test_an_error_restores_it() -> None:
    with pytest.raises(ValueError, match="wrong"), rare_collections():
        raise ValueError("wrong")
    assert gc.get_threshold() == (123, 4, 5)


def test_two_threads_that_overlap() -> None:
    first_is_in, second_is_in = threading.Event(), threading.Event()

    def first() -> None:
        with rare_collections():
            first_is_in.set()
            second_is_in.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    assert first_is_in.wait(10)
    with rare_collections():
        second_is_in.set()
        thread.join()
        assert gc.get_threshold() == RARELY
    assert gc.get_threshold() == (123, 4, 5)
