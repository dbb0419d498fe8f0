"""Functions of a user that move a cache on, or drop its first tokens: right ones, and wrong ones that are named."""

import numpy as np

from clockhands.testing import check_generation

from .small_models import VOCABULARY, SmallModel, moved

WRONG = {
    "other direction": ("cached-keys-moved-wrongly", "in the other direction"),
    "twice": ("cached-keys-moved-wrongly", "by twice as many positions"),
    "one more": ("cached-keys-moved-wrongly", "by 1 position"),
    "first text": ("cached-keys-keep-positions", "in all texts of a batch but the first"),
    "none": ("cached-keys-keep-positions", "at their old positions when a cache is shifted"),
}


def turned(cache, by, how):
    turns = {"other direction": -by, "twice": 2 * by, "one more": by + 1, "none": 0}
    return moved(cache, turns.get(how, by), by, slice(1) if how == "first text" else slice(None))


def shift_of(how):
    return lambda cache, start, delta: turned(cache, delta, how) if start == 0 else None


def drop_of(how):
    def context_shift(kv_cache, n_keep, n_discard):
        rows = range(n_keep, n_keep + n_discard)
        cut = {name: [np.delete(each, rows, 2) for each in kv_cache[name]] for name in ("keys", "values")}
        return turned({**cut, "at": np.delete(kv_cache["at"], rows, 1)}, -n_discard, how)

    return context_shift


def checked(shift):
    return check_generation(SmallModel("numpy"), vocabulary=VOCABULARY, raises=False, shift=shift)


def test_right_functions_pass_and_wrong_ones_are_named(cases):
    for made in (shift_of, drop_of):
        with cases(made.__name__):
            report = checked(made(None))
            assert report.sound, str(report)
            assert "a shifted cache" in report.experiments
    for how, (code, words) in WRONG.items():
        for made in (shift_of, drop_of):
            with cases(made.__name__, how):
                report = checked(made(how))
                assert report.codes == {code}, str(report)
                assert [failure.experiment for failure in report.failures] == ["a shifted cache"]
                assert words in report.explanations[0].message


def test_another_base_of_a_shift_is_named():
    def shift(cache, by):
        apart = moved(cache, by, by)
        apart["keys"] = [moved(cache, by * 1.25, by)["keys"][0], *apart["keys"][1:]]
        return apart

    report = checked(shift)
    assert report.codes == {"cached-keys-other-rotation"}, str(report)
    assert "those of layer 0 by the angles of none of its layers" in report.explanations[0].message


class Shifting(SmallModel):
    """A model with a method that moves its cache, which is found by its name."""

    def shift_cache(self, cache, delta):
        return turned(cache, delta, self.slip)


def test_a_method_that_moves_the_cache_is_found(cases):
    for how in (None, "twice"):
        with cases(how):
            report = check_generation(Shifting("numpy", slip=how), vocabulary=VOCABULARY, raises=False)
            assert "a shifted cache" in report.experiments
            assert report.codes == ({WRONG[how][0]} if how else set()), str(report)


def test_a_function_that_fails_is_said_to_fail():
    def shift(cache, by):
        raise RuntimeError(f"no room for {by} in {len(cache)}")

    report = checked(shift)
    assert report.sound
    assert report.left_out["a shifted cache"] == "shift(cache, by) raised RuntimeError: no room for 11 in 3"
