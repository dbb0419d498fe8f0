"""Small models of the installed Transformers, whichever release it is: each is audited, run, swapped and restored.

`make test-versions` runs this with other releases, as `environments.toml` lists them.
"""

import copy
import warnings
from importlib.metadata import version

import pytest
from packaging.version import Version

import clockhands as ch
from auditing.loaded_models import FAMILIES
from clockhands.errors import InvalidValue
from late import Late
from probes.tiny_models import MORE

torch, transformers, exactly = Late("torch"), Late("transformers"), Late("clockhands.transformers")
pytestmark = pytest.mark.slow

# Each way of computing positions: scalings, two kinds of layers, tables in attention, biases, sinusoids.
NAMES = (
    "llama", "qwen2", "gemma2", "gemma3_text", "phi3", "gpt_neox", "gptj", "falcon", "cohere", "cohere2", "mixtral",
    "deepseek_v3", "llama4_text", "gpt_oss", "bloom", "mpt", "t5", "umt5", "m2m_100",
)  # fmt: skip
# The first release that has a type, of those that are tried.
SINCE = {"deepseek_v3": "4.51", "llama4_text": "4.51", "gpt_oss": "4.55"}
CLOSE = 1e-4  # of the largest output


def before_5(given):
    """A config as releases before Transformers 5 write it: base and scaling apart."""
    made = copy.deepcopy(dict(given))
    blocks = made.pop("rope_parameters", None)
    if blocks is None:
        return made
    if "sliding_attention" in blocks:
        made["rope_local_base_freq"] = blocks["sliding_attention"]["rope_theta"]
        blocks = blocks["full_attention"]
        made["sliding_window_pattern"] = made["layer_types"].index("full_attention") + 1
    made["rope_theta"] = blocks.pop("rope_theta")
    kind = blocks["rope_type"]
    if kind == "longrope":
        made["original_max_position_embeddings"] = blocks["original_max_position_embeddings"]
        blocks = {"type": kind, **{name: blocks[name] for name in ("short_factor", "long_factor")}}
    if kind != "default":
        made["rope_scaling"] = blocks
    return made


def newer_than(release):
    return Version(version("transformers")) >= Version(release)


def model_of(name):
    """The small random model of a type, with a head for text where it has one."""
    if not newer_than(SINCE.get(name, "0")):
        pytest.skip(f"Transformers {version('transformers')} has no {name}")
    transformers.logging.set_verbosity_error()
    given = FAMILIES[name].config if name in FAMILIES else MORE[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # some releases warn of their own attributes
        config = transformers.AutoConfig.for_model(name, **(given if newer_than("5") else before_5(given)))
    torch.manual_seed(0)
    family = transformers.AutoModel if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    return family.from_config(config).eval()


def given_to(model):
    size = model.config.get_text_config().vocab_size
    ids = torch.randint(3, size, (2, 20), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids} | ({"decoder_input_ids": ids[:, :12]} if model.config.is_encoder_decoder else {})


def output(model):
    with torch.no_grad():
        return model(**given_to(model))[0]


def problems(audited):
    return [(found.code, found.message) for found in audited.findings if found.severity != "note"]


def live(model, folder=None):
    from clockhands.probes import probe

    ids = given_to(model)["input_ids"]
    return probe(model if folder is None else str(folder), ids=ids, measure=["live"])["live"].numbers["findings"]


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_model_is_audited_run_swapped_and_restored(name):
    model = model_of(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not problems(ch.audit(model))
    assert exactly.spec_of(model, part="decoder" if model.config.is_encoder_decoder else None) is not None
    assert live(model) == []
    before = output(model)
    changed = exactly.swap(model)
    assert changed
    after = output(model)
    assert (after - before).abs().max() <= CLOSE * before.abs().max()
    assert exactly.restore(model) == changed
    assert torch.equal(output(model), before)


def test_a_fault_is_named_in_every_release():
    model = model_of("llama")
    for each in model.modules():
        for key in [key for key in each._buffers if key.endswith("inv_freq")]:
            each._buffers[key] = each._buffers[key] ** 1.1
    assert problems(ch.audit(model))
    assert live(model)
    with pytest.raises(InvalidValue, match="does not compute the positions that its config declares"):
        exactly.swap(model)


def test_a_saved_model_is_loaded_and_probed(tmp_path):
    model = model_of("qwen2")
    model.save_pretrained(tmp_path)
    assert not problems(ch.audit(tmp_path))
    assert live(model, tmp_path) == []


def test_an_exact_module_and_a_registered_scaling_have_exact_frequencies():
    config = model_of("llama").config
    module = exactly.RotaryEmbedding(config)
    cos, _ = module(torch.zeros(1, 4, 8), torch.tensor([[0, 1, 2, 127]]))
    spec = exactly.spec_of(config)
    exact = ch.rotary.cos_sin(spec, [0, 1, 2, 127], like=torch.zeros(0))
    assert torch.equal(cos[0], torch.cat((exact.cosine, exact.cosine), -1))

    exactly.register()
    given = copy.deepcopy(dict(FAMILIES["llama"].config))
    given["rope_parameters"]["rope_type"] = "clockhands_llama3"
    config = transformers.AutoConfig.for_model("llama", **(given if newer_than("5") else before_5(given)))
    made = transformers.AutoModel.from_config(config)
    assert torch.equal(
        made.rotary_emb.inv_freq.double(), torch.tensor(spec.rates, dtype=torch.float64).float().double()
    )
    assert problems(ch.audit(made)) == []


def test_a_swapped_model_is_compiled():
    model = model_of("llama")
    before = output(model)
    exactly.swap(model)
    compiled = torch.compile(model, backend="eager")
    assert (output(compiled) - before).abs().max() <= CLOSE * before.abs().max()
