"""The code of an arm inside a model: factors, windows, channels, drawn slopes, faults, and where it is computed."""

import math

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings import additive, biases, sampling
from clockhands.encodings.mixtures import LayerMixture
from clockhands.errors import InvalidValue
from clockhands.lab import study as studies
from clockhands.lab.arms import Setting, setting, sizes_of, wanted
from clockhands.lab.sections import Arm
from clockhands.recognition.faults import FAULTS
from lab.test_studies import changed, refuses, shipped
from late import Late

torch, codes, models = Late("torch"), Late("clockhands.lab._model_codes"), Late("clockhands.lab._model")

LENGTH, HEADS, HEAD_WIDTH = 12, 4, 8
WIDTH = HEADS * HEAD_WIDTH
ROTARY, WAVES, LINES = ch.Rotary(HEAD_WIDTH), ch.Sinusoidal(WIDTH), ch.Alibi(HEADS)


def made(spec, fault: str = "", causal: bool = True, seed: int = 0, **arm):
    return codes.ModelCode(Setting(spec, fault), Arm(code="", **arm), causal, seed)


def tokens(length: int = LENGTH):
    return torch.randn(2, length, WIDTH, generator=torch.Generator().manual_seed(0))


def mask(code, length: int = LENGTH):
    return code.prepare(2, length, None, tokens(length))[0].mask


def near(one, other) -> None:
    torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_what_cannot_be_built_is_refused(cases):
    refuses(cases, codes.check, "codes")


def test_a_learned_code_cannot_come_back_after_a_drop():
    text = changed("lengths = [16]\n", 'drop = { at = "50 %" }\nat_test.back = { code = { type = "Learned" } }\n')
    words = "Learned is used at test time, but has learned numbers that were not trained"
    with pytest.raises(InvalidValue, match=words):
        codes.check(studies.parse(text.replace("[16, 32]", "[16]")))
    codes.check(studies.parse(text.replace("drop = ", "#").replace("[16, 32]", "[16]")))


def kinds_of_codes() -> list[tuple]:
    """The codes of the shipped studies: one of each kind, with all that a model of it is built from."""
    kinds = {}
    for study in shipped():
        for key in dict.fromkeys(each._replace(seed=0) for each in study.trial_keys()):
            arm, sizes, causal = study.arms[key.arm], sizes_of(study, key), study.tasks[key.task].task.causal
            for variant in ("", *arm.at_test):
                ready = setting(arm, sizes, 16, LENGTH, variant, causal=causal)
                kind = (type(ready.spec), ready.fault, arm.slopes, arm.channels, bool(arm.window), bool(arm.positions))
                kinds.setdefault((*kind, causal), []).append((study.name, key, arm, sizes, ready, causal))
    return list(kinds.values())


def test_codes_of_shipped_studies_can_be_built_and_computed_elsewhere(cases, draw):
    """On PyTorch's device without numbers, every tensor that was left on the CPU is an error."""
    for study in shipped():
        codes.check(study)
    for members in draw(kinds_of_codes(), 12):
        ((name, key, arm, sizes, ready, causal),) = draw(members, 1)
        with cases(name, key.arm):
            model = models.Transformer(sizes, 32, codes.ModelCode(ready, arm, causal, 0), causal, 0).to("meta")
            drawn = arm.positions and sampling.randomised(LENGTH, 64, rng=0, batch=2)
            model(torch.zeros(2, LENGTH, dtype=torch.long, device="meta"), drawn).sum().backward()
            assert {each.device.type for each in model.parameters()} == {"meta"}


def test_learned_numbers_follow_the_seed_alone():
    numbers = []
    for seed, elsewhere in ((1, 5), (1, 6), (2, 5)):
        torch.manual_seed(elsewhere)
        numbers.append(made(ch.Learned(WIDTH, LENGTH), seed=seed).state_dict()["module.weight"])
    assert torch.equal(numbers[0], numbers[1])
    assert not torch.equal(numbers[0], numbers[2])


# Factors, slopes, windows, channels


def test_a_factor_multiplies_a_bias_and_what_is_added():
    for times in (0.5, 2.0):
        more = mask(made(LINES, times=times))
        assert torch.equal(more, mask(made(LINES)) * times)
        assert more.isneginf().sum() == HEADS * LENGTH * (LENGTH - 1) / 2
    x = tokens()
    once, twice = (made(WAVES, times=times).embed(x) - x for times in (1.0, 2.0))
    torch.testing.assert_close(twice, 2 * once)
    torch.testing.assert_close(once[0], torch.tensor(ch.table(WAVES, LENGTH)), atol=1e-6, rtol=0)


def test_drawn_slopes_lie_in_the_range_of_its_own_and_follow_the_seed():
    own = np.array(biases.Alibi(HEADS).slopes)
    found = {}
    for seed in range(20):
        drawn = mask(made(LINES, slopes="drawn", seed=seed))[0]
        found[seed] = -drawn[:, 1, 0].numpy()
        for head in range(HEADS):
            row = drawn[head, -1].numpy()
            np.testing.assert_allclose(row, -found[seed][head] * np.arange(LENGTH)[::-1], rtol=1e-6)
        assert (own.min() * (1 - 1e-6) <= found[seed]).all()
        assert (found[seed] <= own.max() * (1 + 1e-6)).all()
        assert torch.equal(drawn, mask(made(LINES, slopes="drawn", seed=seed))[0])
    assert len({tuple(each) for each in found.values()}) == 20
    logs = np.log(np.concatenate(list(found.values())))
    assert abs(logs.mean() - np.log(own[[0, -1]]).mean()) < 4 * np.ptp(np.log(own)) / math.sqrt(12 * len(logs))


def test_a_window_hides_what_is_further_away(cases):
    away = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
    for spec in (None, LINES, ROTARY):
        for causal in (True, False):
            with cases(spec, causal):
                ready = made(spec, causal=causal, window=3).prepare(1, LENGTH, None, tokens())[0]
                seen = (away < 3) & ((away >= 0) if causal else (away > -3))
                assert (ready.mask.isneginf().logical_not().numpy() == seen).all()
                assert not ready.is_causal
                if spec == LINES:
                    unseen = ~torch.tensor(seen)
                    own = mask(made(spec, causal=causal))
                    assert torch.equal(ready.mask.masked_fill(unseen, 0), own.masked_fill(unseen, 0))
    whole = made(None, window=LENGTH).prepare(1, LENGTH, None, tokens())[0]  # over everything it changes nothing
    assert (whole.mask, whole.is_causal) == (None, True)


def test_a_code_in_some_channels_leaves_the_others():
    x = tokens()
    coded = made(additive.Counter(width=1), channels=1).embed(x)
    assert torch.equal(coded[..., 1:], x[..., 1:])
    torch.testing.assert_close(coded[..., 0] - x[..., 0], torch.arange(LENGTH).float().expand(2, -1))


def test_layers_have_the_codes_of_a_mixture():
    ready = made(LayerMixture((ROTARY, None, LINES), (0, 1, 2)), window=4).prepare(4, LENGTH, None, tokens())
    q = tokens().view(2, LENGTH, HEADS, HEAD_WIDTH).transpose(1, 2)
    assert [torch.equal(each.turn(q, q)[0], q) for each in ready] == [False, True, True, False]
    assert ready[0] is ready[3]
    visible = [each.mask[..., -1, :].isfinite().sum().item() for each in ready]
    assert visible == [4, 4, 4 * HEADS, 4]


def test_given_positions_are_those_of_the_code(cases):
    """Positions from 3 on give what the last tokens of a longer sequence have."""
    x, positions = tokens(), np.broadcast_to(np.arange(3, 3 + LENGTH), (2, LENGTH))
    long = torch.cat([x[:, :3], x], 1)
    q = x.view(2, LENGTH, HEADS, HEAD_WIDTH).transpose(1, 2)
    more = torch.cat([q[:, :, :3], q], 2)
    for spec in (WAVES, ROTARY, LINES):
        with cases(spec):
            code = made(spec)
            torch.testing.assert_close(code.embed(x, positions), code.embed(long)[:, 3:])
            given, usual = (code.prepare(1, *at, x)[0] for at in ((LENGTH, positions), (LENGTH, None)))
            longer = code.prepare(1, LENGTH + 3, None, long)[0]
            near(given.turn(q, q)[0], longer.turn(more, more)[0][:, :, 3:])
            # Scores depend on distances only, so that what attention gives is the same.
            near(*(each.attend(*each.turn(q, q), q) for each in (given, usual)))


# Faults


def attended(code):
    x = code.embed(tokens())
    q = x.view(2, LENGTH, HEADS, HEAD_WIDTH).transpose(1, 2)
    ready = code.prepare(1, LENGTH, None, x)[0]
    return ready.attend(*ready.turn(q, q), q)


def test_some_faults_are_other_codes_and_some_have_a_formula(cases):
    for spec, fault, same in (
        (ROTARY, "other-layout", ch.Rotary(HEAD_WIDTH, layout="interleaved")),
        (ROTARY, "other-direction", ch.Rotary(HEAD_WIDTH, direction="backward")),
        (WAVES, "not-added", None),
        (WAVES, "other-layout", ch.Sinusoidal(WIDTH, layout="halves")),
    ):
        with cases(spec, fault):
            near(attended(made(spec, fault)), attended(made(same)))
    x = tokens()
    near(made(WAVES, "added-twice").embed(x), x + 2 * (made(WAVES).embed(x) - x))
    torch.testing.assert_close(mask(made(LINES, "slope-sign")).tril(), -mask(made(LINES)).tril())
    assert mask(made(LINES, "first-slope-one"))[0, 0, 1, 0] == -1
    # In an encoder the fault is on both sides.
    wrong, right = (mask(made(LINES, fault, causal=False)) for fault in ("slope-sign", ""))
    torch.testing.assert_close(wrong, -right)


def test_a_fault_is_built_in_or_refused_with_a_sentence():
    built, refusals = {}, set()
    for spec in (ROTARY, WAVES, LINES):
        right, found = attended(made(spec)), []
        for fault in FAULTS:
            try:
                wrong = attended(made(spec, fault))
            except InvalidValue as refusal:
                start, end = f"The fault '{fault}' cannot be built into {type(spec).__name__} at length 12: it ", "."
                refusals.add(refusal.message.removeprefix(start).removesuffix(end))
            else:
                assert wrong.isfinite().all()
                found += [fault] if not torch.allclose(wrong, right, atol=1e-6) else []
        built[type(spec).__name__] = found
    assert {"other-layout", "other-direction", "closed-span", "one-half-only"} <= set(built["Rotary"])
    assert {"other-layout", "added-twice", "not-added", "code-multiplied"} <= set(built["Sinusoidal"])
    assert {"slope-sign", "first-slope-one"} <= set(built["Alibi"])
    assert refusals == {"depends on the tokens or on earlier calls", "is not a fault of this encoding"}


def test_other_codes_and_drawn_positions_have_no_fault_built_in(cases):
    mixed = LayerMixture((ROTARY, None), (0, 1))
    for spec, what in ((None, "no position encoding"), (ch.Learned(WIDTH, LENGTH), "Learned"),
                       (biases.Kerple(HEADS), "Kerple"), (mixed, "LayerMixture")):  # fmt: skip
        with cases(what):
            with pytest.raises(InvalidValue) as caught:
                made(spec, "other-layout")
            assert str(caught.value) == (
                f"The fault 'other-layout' cannot be built into {what}.\n"
                "hint: Use an encoding that is computed, not learned, and that is the same in all layers."
            )
    with pytest.raises(InvalidValue, match="A code with a fault has the positions 0, 1, 2"):
        made(ROTARY, "other-layout").prepare(1, LENGTH, np.arange(LENGTH), tokens())


def test_what_a_trial_needs_is_what_is_checked():
    study = studies.parse(changed("lengths = [16]\n", 'drop = { at = 3 }\nat_test.x = { code = "none" }\n'))
    learned = study.trial_keys()[1]
    assert list(wanted(study, learned)) == [
        ("", 16, False), ("", 16, True), ("", 32, True), ("x", 16, True), ("x", 32, True),
    ]  # fmt: skip
