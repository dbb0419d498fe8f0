"""How many positions a code can be asked for, and which keys about position nothing read.

`stated/overriding_and_ignored.json` states both of configs.
"""

from clockhands.additive import Learned
from clockhands.auditing._audits import judged
from clockhands.sources.opened import Opened
from clockhands.sources.resolve import resolve
from resolution.expected import opened, resolved


def test_the_usable_length_of_a_preset_has_the_preset_as_its_source():
    (preset,) = resolve(Opened("mine", "preset", spec=Learned(8, 514, 2))).codes
    assert (preset.usable_length, preset.source["usable_length"]) == (512, "preset mine")


def test_the_document_of_an_audit_has_the_keys_that_nothing_read():
    config = {"model_type": "llama", "rope_theta": 1e6, "rope_ratio": 50, "use_dynamic_ntk": True, "vocab_size": 9}
    ignored = judged(opened(config), resolved(config)).to_dict()["ignored"]
    assert ignored == {"config.json:rope_ratio": 50, "config.json:use_dynamic_ntk": True}
