"""How many threads linear algebra takes in a command that makes many small products."""

import os


def one_thread() -> None:
    """Have the linear algebra library use one thread, unless the user has said how many.

    The threads of small products mostly wait on each other: one takes a third of the time, and on a busy machine far
    less. The variable is read when NumPy is first imported, so this comes before that.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
