"""The commands that run a model: probe, audit --live and audit --price, on a small model in a folder."""

import json
import os
import re
import shutil
import signal
from contextlib import contextmanager

import pytest

import clockhands as ch
from clockhands.cli import main
from late import Late
from models.tower_models import small
from probes import probed_models as models
from written_files import small_gguf

tokenizers, transformers = Late("tokenizers"), Late("transformers")

TEXT = "".join("abcdefgh"[(place * place) % 8] for place in range(2000))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A trained model with a tokenizer of letters, in a folder, and a text."""
    place = tmp_path_factory.mktemp("model")
    models.taught().save_pretrained(place)
    letters = {chr(97 + number): number for number in range(26)} | {"[UNK]": 26}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(place)
    (place / "text.txt").write_text(TEXT)
    return place


def invoked(*arguments):
    with pytest.raises(SystemExit) as left:
        main([str(each) for each in arguments])
    return left.value.code


def test_json_has_prices_at_the_top_and_a_page_begins_with_the_answer(folder, tmp_path, capsys):
    page = tmp_path / "probe.html"
    how = ("--measure", "price", "--length", "64", "--windows", "12", "--json", "--html", page)
    code = invoked("probe", folder, "--text", folder / "text.txt", *how)
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert code == 0, err
    assert document["schema"] == 1
    assert {"fault", "nats", "interval", "visible"} <= set(document["prices"][0])
    assert {each["fault"] for each in document["prices"]} >= {"rotation-off", "layout-swapped", "positions-shifted"}
    text = page.read_text()
    body = text[text.index("<main") :]
    assert body.index("faults are visible") < body.index("<table")
    assert "rotation-off" in body
    assert re.search(r'<td class="lab-text">No query and key is rotated\.</td>', body), "texts stand left"
    assert re.search(r"<td>[\d.]+</td>", body), "numbers stand right"


def test_the_page_has_an_interval_for_each_price_and_a_cell_for_each_head():
    from clockhands.probes import Probe
    from clockhands.probes.results import EstimateRows, HeadMap, ProbeResult
    from clockhands.show.probe import probe_page

    prices = EstimateRows("Prices", "nats per token", (("moved", 0.5, 0.4, 0.6), ("not judged", 0.1, None, None)))
    heads = HeadMap("How far heads look", "tokens", ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)))
    body = probe_page(Probe("model", 1, 8, (ProbeResult("price", ("Yes.",), {}, (), (prices, heads)),)))
    for drawn in body.split('<div class="lab-panels')[1:3]:
        assert drawn.count("<svg") == 2, "one for a wide page, one for a phone"
    assert body.count('class="bar"') == 2 * 1
    told = re.findall(r"layer (\d), head (\d): (\d)", body)
    assert told == 2 * [(str(layer), str(head), str(1 + 3 * layer + head)) for layer in range(2) for head in range(3)]
    (darkest, lightest) = (re.search(rf'fill-opacity="([\d.]+)"[^>]*><title>[^<]*: {it}<', body)[1] for it in "61")
    assert (darkest, lightest) == ("1.0", "0.06")


def test_a_probe_as_text_is_its_report():
    from clockhands.probes import Probe
    from clockhands.probes.results import Columns, ProbeResult

    table = Columns("Nats per token.", ("fault", "cost"), (("none", 0.123456), ("moved by 8,192", None)))
    found = Probe(
        "model", 1, 512, (ProbeResult("price", ("It costs much.",), {}, (table,)),), (("live", "No rotary."),)
    )
    assert str(found).split("\n") == [
        "model",
        "  1 window of 512 tokens",
        "",
        "price",
        "  It costs much.",
        "",
        "  Nats per token.",
        "    fault           cost",
        "    none            0.1235",
        "    moved by 8,192  –",
        "",
        "Left out: live. No rotary.",
    ]


def test_the_terminal_has_the_answers_first_and_progress_goes_to_stderr(folder, capsys):
    code = invoked(
        "probe", folder, "--text", folder / "text.txt", "--measure", "price", "--length", "64", "--windows", "12"
    )
    out, err = capsys.readouterr()
    assert code == 0
    assert out.index("faults are visible") < out.index("layout-swapped  ")
    assert "price: rotation-off" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_keeps_what_was_measured_until_then(folder, capsys, monkeypatch, number):
    """The signal comes while tokens are shuffled: the use of positions and the loss by position were measured."""

    @contextmanager
    def ended(**_):
        yield lambda what, _share: os.kill(os.getpid(), number) if "tokens shuffled" in what else None

    # A signal that the surroundings ignore, as `nohup` does SIGHUP, stays ignored.
    kept = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    monkeypatch.setattr("clockhands.cli.probe.shown_progress", ended)
    asked = ("probe", folder, "--text", folder / "text.txt", "--measure", "behaviour", "--length", "64", "--json")
    try:
        code = invoked(*asked)
    finally:
        signal.signal(number, kept)
    out, err = capsys.readouterr()
    assert code == 130
    assert "interrupted during behaviour" in err
    found = json.loads(out)
    assert found["interrupted"] == "behaviour"
    assert found["results"][0]["bands"]
    assert "shuffled" not in found["results"][0]


def test_steps_are_written_to_stderr_in_python_too(capsys):
    ch.probe(models.llama(), ids=models.IDS[:1, :32], measure=["behaviour"], progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "  0% loading the model ..."
    assert any(line.endswith("behaviour: tokens shuffled ...") for line in err.splitlines())


def test_an_interrupt_keeps_what_was_read_of_heads():
    def interrupted(what, _):
        if "dimension pairs" in what:
            raise KeyboardInterrupt

    found = ch.probe(models.llama(), ids=models.IDS, measure=["mechanism"], progress=interrupted)
    assert found.interrupted == "mechanism"
    assert found["mechanism"].answers
    assert "Interrupted during mechanism: what was measured until then is shown." in str(found)


def told(capsys, message):
    """Whether one sentence and a hint were written."""
    err = capsys.readouterr().err
    assert message in err
    assert "\nhint: " in err


def test_bad_input_is_one_sentence_and_a_hint(folder, tmp_path, capsys, cases):
    text = ("--text", folder / "text.txt")
    for arguments, message in (
        (("--measure", "price"), "No text was given"),
        (("--measure", "weight"), "'weight' is not a measurement"),
        ((*text, "--length", "9000"), "longer than the context of 256"),
        ((*text, "--length", "256", "--windows", "9"), "The text has"),
        (("--text", folder / "absent.txt"), "cannot be read as a text"),
        (("--force",), "--force is for --html"),
    ):
        with cases(message):
            assert invoked("probe", folder, *arguments) == 2
            told(capsys, message)
    for arguments, message in (
        (("--price",), "--price measures the loss on a text"),
        (("--text", "a.txt"), "--text is for --live and --price"),
        (("--live", "--set", "rope_theta=1"), "leave out --set and --fix"),
    ):
        with cases(message):
            assert invoked("audit", folder, *arguments) == 2
            assert message in capsys.readouterr().err
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert invoked("probe", tmp_path / "config.json", "--measure", "live") == 2
    assert "has no weights on this machine" in capsys.readouterr().err


def test_a_model_or_a_window_that_does_not_fit_into_memory_is_refused(folder, capsys, monkeypatch):
    for where, bytes_left, message in (
        ("models.running_models", 10_000, "parameters and would take about"),
        ("probes.probing", 1_000, "The logits of 64 tokens would take"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(f"clockhands.{where}.available", lambda left=bytes_left: left)
            arguments = ("--text", folder / "text.txt", "--length", "64", "--measure", "price")
            assert invoked("probe", folder, *arguments) == 2
        told(capsys, message)


def test_audit_live_says_that_the_declared_positions_are_in_effect(folder, capsys):
    assert invoked("audit", folder, "--live", "--json") == 0
    (target,) = json.loads(capsys.readouterr().out)["targets"]
    assert target["live"]["reference"]["same"]
    assert target["live"]["layers_checked"] == models.LAYERS


def test_audit_price_puts_the_price_beside_a_finding_that_can_be_built(folder, tmp_path, capsys):
    """The base is lost from the config: the model of that size was released with another one."""
    broken = tmp_path / "broken"
    broken.mkdir()
    for each in folder.iterdir():
        (broken / each.name).write_bytes(each.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                 "original_max_position_embeddings": 32}  # fmt: skip
    (broken / "config.json").write_text(json.dumps(config))
    invoked("audit", broken, "--price", "--text", folder / "text.txt", "--json")
    (target,) = json.loads(capsys.readouterr().out)["targets"]
    priced = {each["code"]: each["price"] for each in target["findings"] if "price" in each}
    assert priced, [each["code"] for each in target["findings"]]
    for price in priced.values():
        assert price["interval"][0] <= price["nats"] <= price["interval"][1]
        assert price["length"] == 256


def test_audit_live_runs_a_tower_alone_and_exits_with_2_only_where_nothing_was_measured(tmp_path, capsys, cases):
    for name, code, says in (
        ("vit", 0, "The declared positions are in effect in the vision part (the rows of its table)."),
        ("beit", 2, "The positions were not measured: no part of the model that shows them was run."),
    ):
        small(name).save_pretrained(tmp_path / name)
        with cases(name):
            assert invoked("audit", tmp_path / name, "--live") == code
            shown = capsys.readouterr()
            assert says in " ".join(shown.out.split())
            assert (says in " ".join(shown.err.split())) == (code == 2)
            assert "random tokens" not in shown.out


def test_what_a_model_needs_is_asked_before_it_is_loaded(folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "model.gguf").write_bytes(small_gguf())
    for missing, target in (("transformers", folder), ("accelerate", tmp_path / "model.gguf")):
        with monkeypatch.context() as patched:
            found = lambda name, missing=missing: name != missing or None  # noqa: E731
            patched.setattr("clockhands.models.running_models.find_spec", found)
            assert invoked("probe", target, "--measure", "live") == 2
        said = capsys.readouterr().err
        assert f"error: A probe runs the model with Transformers, and {missing} is not installed." in said
        assert "pip install 'clockhands[probe]'" in said


def test_code_in_the_folder_of_a_model_never_runs_and_that_of_a_hub_is_not_fetched(folder, tmp_path, capsys, cases):
    """A config names its own classes, and code of a hub for its attention; Python files have the names of both."""
    (tmp_path / "text.txt").write_text(TEXT)
    sound = json.loads((folder / "config.json").read_text())
    own = {f"Auto{kind}": "evil.Evil" for kind in ("Config", "Model", "ModelForCausalLM", "Tokenizer")}
    for changes, code in (
        ({"auto_map": own}, 0),
        ({"auto_map": own, "model_type": "evil", "architectures": ["Evil"]}, 2),
        ({"attn_implementation": "evil/kernel"}, 2),
        ({"text_config": {"_attn_implementation": {"": "evil/kernel:f"}}}, 2),
    ):
        model = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(folder, model)
        (model / "config.json").write_text(json.dumps(sound | changes))
        for name in ("evil", "modeling_evil", "numpy", "transformers"):
            (model / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
        with cases(changes):
            assert invoked("audit", model, "--live", "--text", model / "text.txt", "--json") == code
            err = capsys.readouterr().err
            assert "Traceback" not in err
            assert "evil/kernel" not in json.dumps(changes) or "code that Transformers would fetch from a hub" in err
            assert not (tmp_path / "ran").exists()
