"""The smallest change of a file: its patch leads through the keys that the file has, or there is none."""

from clockhands.auditing._edits import STDIN, Edit, added, copied, moved, placed, pointer, removed, replaced, together

C = "config.json:"
FILE = {"rope_scaling": {"a.b": 1, "factor": 8.0}, "x/y~z": 2, "text_config": {"rope_theta": 1e4}, "l": [{"k": 1}]}
DOCUMENTS = {"config.json": FILE}


def fitted(edit):
    made = placed(edit, DOCUMENTS)
    assert made is not None
    return made


def patch_of(edit):
    return [dict(step) for step in fitted(edit).patch]


def test_a_source_becomes_a_file_and_a_pointer():
    assert pointer("config.json:a.b") == ("config.json", "/a/b")
    assert pointer("config.json:x/y~z") == ("config.json", "/x~1y~0z")


def test_a_patch_leads_through_the_keys_that_the_file_has_or_there_is_none(cases):
    for number, (edit, step) in enumerate((
        (removed(f"{C}rope_scaling.a.b", "…"), {"op": "remove", "path": "/rope_scaling/a.b"}),  # a dot in a key
        (replaced(f"{C}x/y~z", 3, "…"), {"op": "replace", "path": "/x~1y~0z", "value": 3}),
        (removed(f"{C}l.0.k", "…"), {"op": "remove", "path": "/l/0/k"}),
        (removed(f"{C}l.1.k", "…"), None),
        # What is not there is not changed, but can be added beside what is.
        (removed(f"{C}rope_theta", "…"), None),
        (replaced(f"{C}text_config.base", 1, "…"), None),
        (added(f"{C}text_config.base", 1, "…"), {"op": "add", "path": "/text_config/base", "value": 1}),
        (added(f"{C}vision.base", 1, "…"), None),
        # A value is moved only where nothing stands, and not into itself; it is copied over whatever stands there.
        (moved(f"{C}rope_scaling.a.b", f"{C}rope_scaling.ab", "…"),
         {"op": "move", "from": "/rope_scaling/a.b", "path": "/rope_scaling/ab"}),
        (moved(f"{C}rope_scaling.a.b", f"{C}rope_scaling.factor", "…"), None),
        (moved(f"{C}text_config", f"{C}text_config.inner", "…"), None),
        (moved(f"{C}text_config.rope_theta", f"{C}text_config.rope_theta_2", "…"),
         {"op": "move", "from": "/text_config/rope_theta", "path": "/text_config/rope_theta_2"}),
        (copied(f"{C}rope_scaling.factor", f"{C}text_config.rope_theta", "…"),
         {"op": "copy", "from": "/rope_scaling/factor", "path": "/text_config/rope_theta"}),
    )):  # fmt: skip
        with cases(number, step):
            assert patch_of(edit) == ([] if step is None else [step])


def test_dots_that_can_be_read_in_two_ways_leave_the_words_alone():
    both = {"config.json": {"a.b": 1, "a": {"b": 2}}}
    assert placed(removed(f"{C}a.b", "Delete it."), both) == Edit("Delete it.", "config.json")


def test_a_place_with_more_ways_than_can_be_counted_gets_no_patch():
    deep: dict = {}
    for _ in range(60):
        deep = {"a": deep, "a.a": deep}
    hostile = {"config.json": deep}
    assert placed(removed(f"{C}{'.'.join('a' * 50)}", "…"), hostile) == Edit("…", "config.json")
    assert placed(removed(f"{C}{'.'.join('a' * 9)}", "…"), hostile) == Edit("…", "config.json")


def test_a_step_may_use_what_an_earlier_one_made():
    inner = f"{C}rope_scaling.full"
    edit = together(
        "…",
        added(inner, {}, ""),
        moved(f"{C}rope_scaling.factor", f"{inner}.factor", ""),
        removed(f"{inner}.factor", ""),
    )
    assert [step["path"] for step in patch_of(edit)] == [
        "/rope_scaling/full",
        "/rope_scaling/full/factor",
        "/rope_scaling/full/factor",
    ]
    assert FILE["rope_scaling"] == {"a.b": 1, "factor": 8.0}, "the file itself is not touched"
    assert patch_of(together("…", added(inner, {}, ""), removed(f"{inner}.factor", ""))) == []


def test_two_values_change_places_by_way_of_a_third_key():
    swap = together(
        "…", moved(f"{C}rope_scaling", f"{C}aside", ""), moved(f"{C}l", f"{C}rope_scaling", ""),
        moved(f"{C}aside", f"{C}l", ""),
    )  # fmt: skip
    assert len(patch_of(swap)) == 3


def test_only_json_that_was_read_is_patched():
    assert removed("model.gguf:rope.freq_base", "…").patch == ()
    assert removed(f"{STDIN}:rope_theta", "…").patch != ()
    assert fitted(removed("params.json:rope_theta", "…")).patch == ()
    assert together("…", removed(f"{C}x", ""), removed("params.json:x", "")).patch == ()
    assert placed(None, DOCUMENTS) is None
