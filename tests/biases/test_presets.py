"""Presets of biases: what each model has, and that describing, writing and changing them works."""

from clockhands.encodings.biases import (
    Alibi,
    BiasCode,
    Buckets,
    CeilingBuckets,
    Clipped,
    Decay,
    Fire,
    Kerple,
    LogWindow,
    Window,
)
from clockhands.encodings.presets import presets

WANTED = {
    "alibi": Alibi(8),
    "alibi-symmetric": Alibi(8, "symmetric"),
    "baichuan-13b": Alibi(40, "key"),
    "beit": Window(12, 14, 14, class_token=True),
    "bloom": Alibi(112, "key"),
    "deberta": Clipped(12, 512),
    "deberta-v2": CeilingBuckets(24, 256, 512),
    "falcon-rw": Alibi(32, "key"),
    "fire": Fire(12, 32),
    "gpt-neox-alibi": Alibi(12, "past"),
    "kerple-log": Kerple(12),
    "kerple-power": Kerple(12, "power"),
    "mesh-transformer-jax": Buckets(16, 32, 128, bidirectional=False, epsilon=2.0**-23),
    "mpnet": Buckets(12, 32, 128),
    "mpt": Alibi(32, "last-key"),
    "retnet": Decay(8),
    "swin": Window(3, 7, 7),
    "swin-v2": LogWindow(3, 8, 8),
    "t5": Buckets(12, 32, 128),
    "t5-decoder": Buckets(12, 32, 128, bidirectional=False),
    "wavlm": Buckets(12, 320, 800),
    "x-transformers-t5": Buckets(8, 32, 128, bidirectional=False, scale=8.0),
}


def test_every_preset_of_a_bias_is_known_here():
    assert {each.name: each.spec for each in presets() if isinstance(each.spec, BiasCode)} == WANTED
