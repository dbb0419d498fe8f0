"""Reads the shape of a rotary head: its width, the rotated channels, and the channels that the exponents count."""

from dataclasses import dataclass

from clockhands.configs._block_fields import conflict_code
from clockhands.configs._scaling_fields import scaling_type
from clockhands.configs.fields import WIDEST, WIDEST_HEAD, Fields, Sourced
from clockhands.configs.model_types import CodeOfType, ModelType

SHARE_ALLOWED = "a number above 0 and at most 1"


@dataclass(frozen=True)
class HeadShape:
    """Channels of a head, and how many of them are rotated.

    Attributes:
        width: Channels of a head.
        rotated: Rotated channels.
        share: The partial rotary factor, if it is declared as one.
        counted: Channels that the exponents of the frequencies count, if not ``rotated``: a class that cuts the head at
            an odd channel rotates one more.
    """

    width: Sourced[int] | None
    rotated: Sourced[int] | None
    share: float | None = None
    counted: int | None = None

    @property
    def pairs(self) -> int | None:
        """The number of rotated pairs."""
        return None if self.rotated is None or self.rotated.value is None else self.rotated.value // 2


@dataclass(frozen=True)
class HeadShapeParser:
    """Reads the shape of the heads of one part.

    Attributes:
        fields: The config of the part.
        known: Its type, or None for one that is not in the table.
        row: The code of that type.
    """

    fields: Fields
    known: ModelType | None
    row: CodeOfType | None

    @property
    def architecture(self) -> str:
        """The source text for what follows from the model type."""
        return self.known.architecture_source if self.known else ""

    @property
    def _uneven(self) -> bool:
        """Whether the class may cut the head at an odd channel, and then rotates the whole pair."""
        return self.known is not None and self.known.uneven

    def shape(self, block: Fields | None, kind: str, own: Sourced[float] | None = None) -> HeadShape:
        """The shape of the heads in layers of one kind, from their rotary block and possibly their own share."""
        if self.is_latent():
            unrotated, rotated = self._two_parts(kind)
            if rotated is None or unrotated is None or rotated.value is None or unrotated.value is None:
                return HeadShape(None, rotated)
            if not self._fits_the_ladder(rotated):
                return HeadShape(None, Sourced(None, rotated.source))
            together = dict.fromkeys((unrotated.source, rotated.source))
            return HeadShape(Sourced(unrotated.value + rotated.value, " + ".join(together)), rotated)
        width = self._width(kind)
        return self._rotated(width, block, own)

    def _two_parts(self, kind: str) -> tuple[Sourced[int] | None, Sourced[int] | None]:
        """The unrotated and the rotated part of a head; in some types sliding layers have other widths."""
        whole = self.row.widths.get(kind) if self.row and self.fields.raw("per_layer") is None else None
        of_kind = ("unrotated", "rotated") if whole is None else ("local_unrotated", "local_rotated")
        unrotated = self.fields.whole(of_kind[0], least=0, most=WIDEST_HEAD)
        rotated = self.fields.whole(of_kind[1], most=WIDEST_HEAD)
        if rotated is None and whole is not None and unrotated is not None:
            width = self.fields.whole(whole, most=WIDEST_HEAD)
            if width is not None and width.value is not None and unrotated.value is not None:
                left = width.value - unrotated.value
                rotated = Sourced(left if left > 0 else None, f"{width.source} - {unrotated.source}")
        return unrotated, rotated

    def _fits_the_ladder(self, rotated: Sourced[int]) -> bool:
        """Whether the rotated width equals the width that the frequencies are computed for, if a class reads both."""
        ladder = self.fields.whole("ladder_width", most=WIDEST_HEAD)
        if ladder is None or ladder.value in (None, rotated.value):
            return True
        names = [self.fields.spellings[quantity][0] for quantity in ("ladder_width", "rotated")]
        allowed = f"one number for {names[0]}, the width of the frequency exponents, which is {ladder.value:,}"
        allowed += f", and for {names[1]}, the number of RoPE dimensions, which is {rotated.value:,}"
        self.fields.impossible_together(allowed, ladder, rotated)
        return False

    def is_latent(self) -> bool:
        """Whether a head consists of an unrotated and a rotated part."""
        if self.known is not None and self.row is not None:
            switch = self.fields.flag("latent")
            return self.row.latent and not (switch is not None and switch.value is False)
        pieces = [self.fields.raw(name) for name in ("unrotated", "rotated")]
        return all(piece is not None and isinstance(piece.value, int) and piece.value > 0 for piece in pieces)

    def _width(self, kind: str) -> Sourced[int] | None:
        named = self.row.widths if self.row else {"full": "full_head_width"}
        for quantity in (*([named[kind]] if kind in named else ()), "head_width"):
            declared = self.fields.whole(quantity, most=WIDEST_HEAD)
            if declared is not None:
                return declared
        return divided(self.fields, uneven=self._uneven)

    def _rotated(self, width: Sourced[int] | None, block: Fields | None, own: Sourced[float] | None) -> HeadShape:
        """How much of a head is rotated: a number of channels before a share, the block's share before the outer."""
        named = self.fields.raw("rotated")
        # If heads do not have two parts, the width of the rotated part is 0 in the file, or unused.
        unmeant = self.row.latent if self.row else named is not None and named.value == 0
        channels = None if unmeant else self.fields.whole("rotated", most=WIDEST_HEAD)
        fixed = self.row is not None and self.row.share is not None
        reads_share = self.known is None or fixed or "share" in self.known.reads
        kind = scaling_type(block)
        # The rope function of Transformers reads the share itself, whatever the model class does.
        proportional = kind is not None and kind.value == "proportional"
        share = own or (self._share(block) if reads_share or proportional else None)
        if proportional and width is not None and width.value:
            part = 1.0 if share is None else share.value
            rotated = None if part is None else 2 * int(part * width.value / 2)
            return HeadShape(width, Sourced(rotated, share.source if share else width.source), part)
        of_share = None
        if share is not None and width is not None:
            turned = None if width.value is None or share.value is None else int(width.value * share.value)
            of_share = Sourced(turned, f"{share.source} x {width.source}")
        if channels is not None:
            # A class that reads both uses the number only if no share is given.
            by_share = self._says_share(block) and self.known is not None and "share" in self.known.reads
            if share is not None and self._disagree(channels, of_share, block):
                self.fields.conflict(share if by_share else channels, channels, share)
            if not by_share:
                return HeadShape(width, channels)
        if share is not None:
            if of_share is not None and of_share.value is not None and of_share.value % 2 and self._uneven:
                turned = Sourced(of_share.value + 1, f"{of_share.source}, {self.architecture}")
                return HeadShape(width, turned, share.value, counted=of_share.value)
            return HeadShape(width, of_share, share.value)
        if width is None:
            return HeadShape(None, None)
        says = self.architecture or "no key declares a partial rotation"
        return HeadShape(width, Sourced(width.value, f"{width.source}, {says}"))

    def _says_share(self, block: Fields | None) -> bool:
        return self.fields.declares("share") or (block is not None and block.declares("share"))

    def _disagree(self, channels: Sourced[int], of_share: Sourced[int] | None, block: Fields | None) -> bool:
        if of_share is None or of_share.value is None or channels.value is None:
            return False
        return self._says_share(block) and of_share.value != channels.value

    def _share(self, block: Fields | None) -> Sourced[float] | None:
        inner = None if block is None else block.number("share", _share_fits, SHARE_ALLOWED)
        if inner is not None and not self.fields.declares("share"):
            return inner
        outer = self.fields.number("share", _share_fits, SHARE_ALLOWED)
        if self.row is not None and self.row.share is not None:
            return inner or Sourced(self.row.share, self.architecture)
        if inner is not None:
            if outer is not None and outer.value != inner.value:
                self.fields.conflict(inner, outer, inner, code=conflict_code(inner.source))
            return inner
        if outer is not None and self.known is not None and not self.fields.declares("share") and outer.value != 1:
            field = self.known.reads["share"][0]
            place = {"belongs at": self.fields.source(field)}
            self.fields.took_default(field, outer.value, self.known.title, **place)
        return outer


def divided(fields: Fields, *, uneven: bool = False) -> Sourced[int] | None:
    """The width of a head, computed from the hidden size and the number of heads.

    Args:
        fields: The config of the part.
        uneven: Whether the class ignores channels that the heads do not divide evenly.
    """
    hidden, heads = fields.whole("hidden", most=WIDEST), fields.whole("heads", most=WIDEST)
    if hidden is None or heads is None:
        names = [name for name, found in (("hidden", hidden), ("heads", heads)) if found is None]
        missing = ", ".join((fields.spellings.get(name) or (name,))[0] for name in names)
        fields.missing(missing, "the width of a head")
        return None
    source = f"{hidden.source} / {heads.source}" if hidden.source != heads.source else hidden.source
    if hidden.value is None or heads.value is None:
        return Sourced(None, source)
    width = hidden.value // heads.value
    allowed = None
    if hidden.value % heads.value and not uneven:
        allowed = "a width that the heads divide evenly"
    elif width > WIDEST_HEAD:
        allowed = f"a head width of at most {WIDEST_HEAD:,}"
    if allowed is not None:
        fields.impossible_together(allowed, hidden, heads)
    return Sourced(None if allowed else width, source)


def _share_fits(value: float) -> bool:
    return 0 < value <= 1
