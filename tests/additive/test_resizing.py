"""Resized tables against PyTorch's interpolation, and the arguments that models get wrong."""

import ml_dtypes  # noqa: F401 - NumPy knows bfloat16 by it
import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings import memory
from clockhands.encodings.additive import resize, resize_matrix
from clockhands.errors import InvalidType, InvalidValue, TooLarge
from late import Late
from oracles import published, sentences
from oracles.rows import every

jax, torch = Late("jax"), Late("torch")


def drawn(*shape):
    return np.random.default_rng(8).standard_normal(shape)


LINE = drawn(7, 3)
GRID = drawn(5 * 6, 3)
SIZES = (1, 2, 3, 5, 7, 8, 11, 20)


def interpolated(values, grid, size, **how):
    """What PyTorch makes of the rows of a grid."""
    image = torch.from_numpy(values).reshape(*grid, -1).permute(2, 0, 1)[None]
    out = torch.nn.functional.interpolate(image, size=size, **how)
    return out[0].permute(1, 2, 0).reshape(-1, values.shape[-1]).numpy()


@every("align_corners", [False, True])
@every("rows", SIZES)
def test_lines_are_those_of_pytorch(rows, align_corners):
    got = resize(LINE, rows, align_corners=align_corners)
    rows_last = torch.from_numpy(LINE).T[None]
    wanted = torch.nn.functional.interpolate(rows_last, size=rows, mode="linear", align_corners=align_corners)
    assert np.abs(got - wanted[0].T.numpy()).max() < 1e-12
    # There is no cubic one for lines, but a grid of one column is a line.
    got = resize(LINE, rows, "cubic", align_corners=align_corners)
    wanted = interpolated(LINE, (7, 1), (rows, 1), mode="bicubic", align_corners=align_corners)
    assert np.abs(got - wanted).max() < 1e-12


@every("size", [(1, 1), (2, 9), (5, 6), (4, 5), (16, 16), (13, 3)])
@every("align_corners, antialias", [(False, False), (True, False), (False, True)])
@every("kind", ["linear", "cubic"])
def test_grids_are_those_of_pytorch(kind, align_corners, antialias, size):
    got = resize(GRID, size, kind, grid=(5, 6), align_corners=align_corners, antialias=antialias)
    how = {"mode": f"bi{kind}", "align_corners": align_corners, "antialias": antialias}
    wanted = interpolated(GRID, (5, 6), size, **how)
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() < 1e-12


def test_the_comparison_with_pytorch_can_fail():
    """Each argument moves the numbers by far more than the tolerance."""
    how = {"mode": "bicubic", "align_corners": False, "antialias": True}
    wanted = interpolated(GRID, (5, 6), (3, 4), **how)
    right = {"grid": (5, 6), "antialias": True}
    assert np.abs(resize(GRID, (3, 4), "cubic", **right) - wanted).max() < 1e-12
    for kind, wrong in (
        ("linear", {}),
        ("cubic", {"antialias": False}),
        ("cubic", {"antialias": False, "align_corners": True}),
        ("cubic", {"cubic": -0.75}),
        ("cubic", {"grid": (6, 5)}),
        ("cubic", {"scale_factor": 0.6}),
    ):
        assert np.abs(resize(GRID, (3, 4), kind, **{**right, **wrong}) - wanted).max() > 1e-3, wrong


@every("kind", ["linear", "cubic"])
def test_a_given_scale_factor_is_that_of_pytorch(kind):
    # DINO adds 0.1 so that rounding keeps the size, and the factor is then not the ratio of the sizes.
    factors = ((8 + 0.1) / 5, (9 + 0.1) / 6)
    image = torch.from_numpy(GRID).reshape(5, 6, 3).permute(2, 0, 1)[None]
    for antialias in (False, True):
        out = torch.nn.functional.interpolate(image, scale_factor=factors, mode=f"bi{kind}", antialias=antialias)
        assert out.shape[2:] == (8, 9)
        wanted = out[0].permute(1, 2, 0).reshape(-1, 3).numpy()
        got = resize(GRID, (8, 9), kind, grid=(5, 6), antialias=antialias, scale_factor=factors)
        assert np.abs(got - wanted).max() < 1e-12
        assert np.abs(resize(GRID, (8, 9), kind, grid=(5, 6), antialias=antialias) - wanted).max() > 1e-3


def test_cubic_weights_of_both_kinds_are_those_of_jax_and_pytorch():
    image = GRID.astype(np.float32).reshape(5, 6, 3)
    for kind, method in (("linear", "linear"), ("cubic", "cubic")):
        for size in ((12, 13), (3, 4)):
            wanted = jax.image.resize(image, (*size, 3), method)
            got = resize(GRID, size, kind, grid=(5, 6), antialias=True)
            assert np.abs(got.reshape(wanted.shape) - wanted).max() < 1e-5
    inner = resize_matrix(8, 16, "cubic", cubic=-0.5)[6]  # far from the edges both of its kinds are one
    assert np.abs(inner - resize_matrix(8, 16, "cubic", antialias=True)[6]).max() < 1e-15
    assert np.abs(inner - resize_matrix(8, 16, "cubic")[6]).max() > 1e-3


@every("kind", ["linear", "cubic"])
@every("how", [{}, {"align_corners": True}, {"antialias": True}])
def test_what_every_way_keeps(kind, how):
    for old in SIZES:
        for new in SIZES:
            matrix = resize_matrix(old, new, kind, **how)
            assert matrix.shape == (new, old)
            assert np.abs(matrix.sum(axis=1) - 1).max() < 1e-14  # a constant stays what it is
            if new > 1 or not how.get("align_corners"):  # one row cannot be both the first and the last
                assert np.abs(matrix - matrix[::-1, ::-1]).max() < 1e-14  # no side is preferred
        assert np.array_equal(resize_matrix(old, old, kind, **how), np.eye(old))


def test_kept_rows_stay_bit_for_bit(backend):
    values = drawn(2 + 30, 4).astype(np.float32)
    given = backend.asarray(values)
    for rows, how in ((12, {}), ((8, 9), {"grid": (5, 6)})):
        resized = backend.to_numpy(resize(given, rows, kept=2, **how))
        assert np.array_equal(resized[:2], values[:2])
        assert np.abs(resized[2:] - resize(values[2:].astype(np.float64), rows, **how)).max() < 4e-6
    # A class token before a square.
    assert resize(values[:26], (7, 7), kept=1).shape == (50, 4)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_every_library_and_dtype_gives_the_same_rows(backend, dtype):
    if dtype == "float64" and backend.name == "jax":
        dtype = "float32"
    given = backend.asarray(drawn(1, 1 + 36, 5), dtype)
    exact = backend.to_numpy(given).astype(np.float64)
    for rows, kind, how in (
        ((14, 9), "cubic", {"antialias": True}),
        ((4, 4), "linear", {"antialias": True}),
        (50, "linear", {"align_corners": True}),
    ):
        resized = resize(given, rows, kind, kept=1, **how)
        assert resized.dtype == given.dtype
        wanted = resize(exact, rows, kind, kept=1, **how)
        got = backend.to_numpy(resized).astype(np.float64)
        # A sum of at most six products along each axis, and one rounding to the dtype.
        rounding = {"float64": 2.0**-49, "float32": 2.0**-20, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
        assert np.abs(got - wanted).max() <= rounding * np.abs(exact).max()
    assert np.array_equal(backend.to_numpy(given).astype(np.float64), exact)


def test_numpy_rounds_once():
    values = drawn(9, 4).astype(np.float16)
    wanted = resize(values.astype(np.float64), 13, "cubic").astype(np.float16)
    assert np.array_equal(resize(values, 13, "cubic"), wanted)


def test_gradients_pass():
    matrix = np.kron(resize_matrix(3, 5), resize_matrix(4, 2))
    values = torch.randn(13, 2, requires_grad=True)
    resize(values, (5, 2), grid=(3, 4), kept=1).sum().backward()
    wanted = np.concatenate([[1.0], matrix.sum(axis=0)])[:, None] * np.ones((1, 2))
    assert np.abs(values.grad.numpy() - wanted).max() < 1e-6

    def total(rows):
        return resize(rows, (5, 2), grid=(3, 4), kept=1).sum()

    assert np.abs(jax.jit(jax.grad(total))(np.float32(values.detach())) - wanted).max() < 1e-6


def test_what_cannot_be_is_refused_in_words(cases):
    sentences.hold("resizing", cases)


def test_what_would_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1 << 30)
    with pytest.raises(TooLarge, match=r"A matrix of shape \[1000000, 1000000\] would take 7.28 TiB"):
        resize_matrix(10**6, 10**6)


# --- scaled and standardised tables ----------------------------------------------------------------------------

SCALED = ch.Sinusoidal(8, scaled=True)


@every(
    "key, name, scale",
    [("sin_xtransformers_scaled", "x-transformers-sinusoidal", 64**-0.5), ("sin_hf_speecht5_scaled", "speecht5", 0.7)],
)
def test_published_scaled_tables_are_these(key, name, scale):
    theirs = published.arrays(key)["table"]
    made = ch.table(ch.preset(name, width=64), len(theirs), values=scale)
    # They round phases to float32, up to 127 x 2**-24 of a radian, and the scale.
    assert np.abs(made - theirs).max() < 128 * 2.0**-24 * scale * 1.5
    assert np.abs(ch.table(ch.preset(name, width=64), len(theirs), values=1.01 * scale) - theirs).max() > 1e-3


def test_published_standardised_tables_are_these():
    from clockhands.encodings.additive import standardised

    theirs = published.arrays("sin_hf_patchtst")["table"]
    rows = ch.table(ch.Sinusoidal(64), 128, "float64")
    assert np.abs(standardised(rows) - theirs).max() < 1e-6
    assert np.abs(standardised(rows[:127]) - theirs[:127]).max() > 1e-5  # another length, other rows
    with pytest.raises(InvalidValue, match="must hold different numbers"):
        standardised(np.ones((2, 2)))
    with pytest.raises(InvalidType, match="must be a NumPy array, got list"):
        standardised([[1.0, 2.0]])


def test_a_scale_multiplies_every_number(backend):
    plain = ch.table(ch.Sinusoidal(8), 5, "float64")
    for scale in (0.125, np.float32(0.125), np.array([0.125]), backend.asarray(np.array(0.125, np.float32))):
        assert np.array_equal(ch.table(SCALED, 5, "float64", values=scale), 0.125 * plain)
    x = backend.asarray(np.ones((2, 5, 8)), "float32")
    got = backend.to_numpy(ch.add(x, SCALED, values=backend.asarray(np.array([0.3], np.float32))))
    assert np.abs(got - (1 + float(np.float32(0.3)) * plain)).max() < 2.0**-23


def test_a_scale_is_rounded_once():
    exact = ch.table(ch.Sinusoidal(8), 100, "float64")
    for dtype in (np.float32, np.float16):
        assert np.array_equal(ch.table(SCALED, 100, dtype, values=1 / 3), (exact * (1 / 3)).astype(dtype))


def test_gradients_reach_the_scale():
    total = ch.table(ch.Sinusoidal(8), 5, "float64").sum()
    scale = torch.tensor(0.5, requires_grad=True)
    ch.add(torch.zeros(5, 8), SCALED, values=scale).sum().backward()
    assert scale.grad.item() == pytest.approx(total, rel=1e-6)
    slope = jax.grad(lambda s: ch.add(jax.numpy.zeros((5, 8)), SCALED, values=s).sum())(jax.numpy.float32(0.5))
    assert float(slope) == pytest.approx(total, rel=1e-5)


@every("bad", [np.nan, np.inf])
def test_rows_that_would_spread_are_refused(bad):
    values = np.zeros((6, 2), np.float32)
    values[0, 1] = bad
    for given in (values, torch.from_numpy(values)):
        with pytest.raises(InvalidValue, match="`values` hold NaN or infinite numbers"):
            resize(given, 9)
    assert np.isfinite(resize(values, 9, kept=1)[1:]).all()  # rows that stay may hold anything


def test_too_many_rows_are_refused_with_a_way_out():
    with pytest.raises(TooLarge) as caught:
        resize(np.ones((4, 2)), 10**11)
    assert caught.value.hint == "Ask for fewer rows: each takes a number for every row that there is."
