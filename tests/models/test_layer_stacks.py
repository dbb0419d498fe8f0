"""Layers of a running model that are computed again one by one."""

from late import Late
from probes.tiny_models import FAMILIES, tiny, tokens

torch, layers, models = Late("torch"), Late("clockhands.models.layer_stacks"), Late("clockhands.models.running_models")


def test_layers_that_are_not_computed_again_change_nothing(cases):
    ids = tokens(1, 24)
    for family in FAMILIES:
        model = tiny(family)
        run = models.runner(model)
        with cases(family), torch.no_grad():
            for stack in layers.stacks(model, run, ids):
                with layers.kept_outputs(stack) as kept:
                    sound = run(ids)[0]
                for number in range(len(stack.layers)):
                    with layers.begun_at(stack, number, kept):
                        assert torch.equal(run(ids)[0], sound)
                kept[0] = nothing(kept[0])
                with layers.begun_at(stack, 1, kept):  # the control: it is these outputs that are used
                    assert not torch.equal(run(ids)[0], sound)


def nothing(output):
    if isinstance(output, tuple):
        return (0 * output[0], *output[1:])
    return 0 * output
