"""What a port does that takes the base and leaves the scaling out: no program, but a pattern found in many."""

from clockhands.readers.views import NEW, OLD, Undescribed, View, scaling_name

_KEPT = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")


def no_scaling(view: View) -> None:
    """Read a part without its scaling.

    Raises:
        Undescribed: There is no scaling to leave out.
    """
    found = False
    for key in (OLD, NEW):
        block = view.block(key)
        if block is None:
            continue
        inner = {name: value for name, value in block.items() if isinstance(value, dict)}
        scaled = [each for each in (block, *inner.values()) if scaling_name(each) not in (None, "default", "mrope")]
        found = found or bool(scaled)
        made = {name: value for name, value in block.items() if name in _KEPT} | {"rope_type": "default"}
        if inner:
            made = {
                name: {part: each for part, each in value.items() if part in _KEPT} | {"rope_type": "default"}
                for name, value in inner.items()
            }
        view.put(key, made)
    if not found:
        raise Undescribed("The file declares no scaling.")
