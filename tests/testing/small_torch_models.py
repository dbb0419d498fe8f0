"""Small causal models of PyTorch as people write them: the cache is an object, a dict, tuples or the module's own."""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, HEAD, LAYERS = 41, 32, 4, 8, 2


def rotated(x, positions, base=500.0):
    """Queries or keys [batch, heads, seq, HEAD], by halves."""
    rates = base ** (-torch.arange(0, x.shape[-1], 2).float() / x.shape[-1])
    angles = positions.float()[..., None] * rates
    cosine, sine = angles.cos(), angles.sin()
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)


def causal(tokens, keys):
    return torch.arange(keys) <= torch.arange(keys - tokens, keys)[:, None]


class KeysAndValues:
    """A cache of one layer, which a call writes to."""

    def __init__(self):
        self.keys = self.values = None

    @property
    def length(self):
        return 0 if self.keys is None else self.keys.shape[2]

    def added(self, keys, values):
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys], 2)
        self.values = values if self.values is None else torch.cat([self.values, values], 2)
        return self.keys, self.values


class Attention(nn.Module):
    """One layer; ``slip`` is what is wrong, or None."""

    def __init__(self, number, slip):
        super().__init__()
        self.number, self.slip = number, slip
        self.read = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def heads(self, x):
        return (each.unflatten(-1, (HEADS, HEAD)).transpose(1, 2) for each in self.read(x).chunk(3, -1))

    def attended(self, queries, keys, values, bias=0.0, seen=None):
        scores = queries @ keys.transpose(-1, -2) / HEAD**0.5 + bias
        seen = causal(*scores.shape[-2:]) if seen is None else seen
        return self.out((scores.masked_fill(~seen, -1e9).softmax(-1) @ values).transpose(1, 2).flatten(-2))

    def forward(self, x, cache, seen=None, positions=None):
        queries, keys, values = self.heads(x)
        past, size = cache.length, x.shape[1]
        at = torch.arange(past, past + size) if positions is None else positions[:, None]
        later = past > 0
        of_queries = at + 2 if self.slip == "queries further" and later else at
        if self.slip == "all at the first" and later:
            of_queries = at = torch.full_like(at, past)
        if self.slip == "second layer further" and later and self.number == 1:
            of_queries = at = at + 1
        if self.slip == "queries by length" and self.number == 1:
            of_queries = at + size
        queries = rotated(queries, of_queries, 50.0 if self.slip == "another base" and later else 500.0)
        if self.slip == "another size" and later:
            queries = 0.5 * queries
        keys, values = cache.added(rotated(keys, at), values)
        if self.slip == "keys again" and later:
            keys = torch.cat([rotated(keys[:, :, :past], torch.arange(past)), keys[:, :, past:]], 2)
        if self.slip == "a key less" and size == 1:
            seen = torch.arange(keys.shape[2])[None] > 0
        return self.attended(queries, keys, values, seen=seen)


class Linear(Attention):
    """Scores fall with distance, without a rotation."""

    def forward(self, x, cache):
        queries, keys, values = self.heads(x)
        past = cache.length
        keys, values = cache.added(keys, values)
        if self.slip == "bias lost" and past:
            return self.attended(queries, keys, values)
        start = 0 if self.slip == "bias of the call" else past
        at = torch.arange(start, start + x.shape[1])[:, None]
        slopes = 2.0 ** -torch.arange(1, HEADS + 1)[:, None, None]
        return self.attended(queries, keys, values, -slopes * (at - torch.arange(keys.shape[2])).abs())


class Paged(Linear):
    """A single token reads keys in blocks of four, whose softmax is written out."""

    def forward(self, x, cache):
        past = cache.length
        if x.shape[1] > 1 or not past or len(x) > 1:
            return super().forward(x, cache)
        queries, keys, values = self.heads(x)
        keys, values = cache.added(keys, values)
        rest = -keys.shape[2] % 4
        padded = [functional.pad(each[0].transpose(0, 1), (0, 0, 0, 0, 0, rest)) for each in (keys, values)]
        of_keys, of_values = (each.unflatten(0, (-1, 4)) for each in padded)
        at = torch.arange(keys.shape[2] + rest)
        slopes = (0.5 if self.slip == "half the slope" else 1.0) * 2.0 ** -torch.arange(1, HEADS + 1)
        bias = (-slopes[:, None] * (past - at)).masked_fill(at > past, -1e9).unflatten(1, (-1, 4)).transpose(0, 1)
        of_blocks = queries[0, :, 0].expand(len(of_keys), -1, -1)
        scores = torch.einsum("nhc,nshc->nhs", of_blocks, of_keys) / HEAD**0.5 + bias
        weights = (scores - scores.amax((0, 2), keepdim=True)).exp()
        said = torch.einsum("nhs,nshc->hc", weights, of_values) / weights.sum((0, 2))[:, None]
        return self.out(said.flatten()[None, None])


class Summed(Attention):
    """Scores of a single token are sums over channels, with keys before heads."""

    def attended(self, queries, keys, values, bias=0.0, seen=None):
        if queries.shape[2] > 1:
            return super().attended(queries, keys, values, bias, seen)
        products = queries.transpose(1, 2) * keys.transpose(1, 2)
        weights = (products.sum(dim=-1) / HEAD**0.5).softmax(1)
        return self.out((weights[..., None] * values.transpose(1, 2)).sum(1).flatten(-2)[:, None])


class Added(Attention):
    """No position in attention."""

    def forward(self, x, cache):
        queries, keys, values = self.heads(x)
        return self.attended(queries, *cache.added(keys, values))


class Crossed(Attention):
    """Queries of the text see the keys of another text as well."""

    def __init__(self, number, slip):
        super().__init__(number, slip)
        self.other = nn.Parameter(torch.randn(1, HEADS, 5, HEAD))

    def forward(self, x, cache):
        return super().forward(x, cache) + self.attended(
            next(self.heads(x)), self.other, self.other, seen=torch.tensor(True)
        )


class Prefixed(Attention):
    """Three learned keys stand before the text."""

    def __init__(self, number, slip):
        super().__init__(number, slip)
        self.before = nn.Parameter(torch.randn(1, HEADS, 3, HEAD))

    def attended(self, queries, keys, values, bias=0.0, seen=None):
        seen = nn.functional.pad(causal(queries.shape[2], keys.shape[2]), (3, 0), value=True)
        first = self.before.expand(len(keys), -1, -1, -1)
        keys, values = (torch.cat([first, each], 2) for each in (keys, values))
        return super().attended(queries, keys, values, bias, seen)


class Bucketed(Attention):
    """Scores have a learned number for each distance up to 12, and no rotation."""

    def __init__(self, number, slip):
        super().__init__(number, slip)
        self.numbers = nn.Parameter(2 * torch.randn(HEADS, 13))

    def forward(self, x, cache):
        queries, keys, values = self.heads(x)
        start = 0 if self.slip == "bias of the call" else cache.length
        keys, values = cache.added(keys, values)
        distances = torch.arange(start, start + x.shape[1])[:, None] - torch.arange(keys.shape[2])
        return self.attended(queries, keys, values, self.numbers[:, distances.clamp(0, 12)])


class Model(nn.Module):
    """A model whose cache is a list of objects that a function beside it makes."""

    def __init__(self, slip=None, attention=Attention):
        super().__init__()
        torch.manual_seed(2)
        self.slip = slip
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.table = nn.Embedding(64, WIDTH)
        self.layers = nn.ModuleList(attention(number, slip) for number in range(LAYERS))
        with torch.no_grad():
            for layer in self.layers:
                layer.read.weight.mul_(2.5)
        self.eval().requires_grad_(False)

    def placed(self, ids, past):
        if not isinstance(self.layers[0], Added):
            return self.embedding(ids)
        if self.slip == "no row alone" and ids.shape[1] == 1:
            return self.embedding(ids)
        start = past // 2 if self.slip == "half the row" else past
        return self.embedding(ids) + self.table(torch.arange(start, start + ids.shape[1]))

    def forward(self, ids, cache=None):
        return self.logits(ids, cache or empty_cache(self))

    def logits(self, ids, cache, *more):
        x = self.placed(ids, cache[0].length)
        for layer, kept in zip(self.layers, cache, strict=True):
            x = x + layer(functional.layer_norm(x, (WIDTH,)), kept, *more)
        return functional.layer_norm(x, (WIDTH,)) @ self.embedding.weight.T


def empty_cache(model):
    return [KeysAndValues() for _ in model.layers]


class OwnCache(nn.Module):
    """A model that keeps keys in itself, and is told where a call begins."""

    def __init__(self):
        super().__init__()
        self.inner, self.kept = Model(), None

    def forward(self, tokens, start_pos):
        if start_pos == 0 or self.kept is None:
            self.kept = empty_cache(self.inner)
        return self.inner(tokens, self.kept)


class StateLayer(nn.Module):
    """A layer that reads hidden states and keeps a dict; the tokens are the first or the second axis."""

    def __init__(self, slip=None, *, sequence_first=False):
        super().__init__()
        torch.manual_seed(3)
        self.attention, self.slip, self.sequence_first = Attention(0, None), slip, sequence_first
        self.eval().requires_grad_(False)

    def forward(self, hidden, kv_cache=None):
        x = hidden.transpose(0, 1) if self.sequence_first else hidden
        queries, keys, values = self.attention.heads(x)
        past = kv_cache["keys"].shape[2] if kv_cache else 0
        at = torch.arange(past, past + x.shape[1])
        start = 0 if self.slip == "queries restart" else past
        queries, keys = rotated(queries, at - past + start), rotated(keys, at)
        if kv_cache:
            keys = torch.cat([kv_cache["keys"], keys], 2)
            values = torch.cat([kv_cache["values"], values], 2)
        if kv_cache is not None:
            kv_cache.update(keys=keys, values=values)
        made = self.attention.attended(queries, keys, values)
        return made.transpose(0, 1) if self.sequence_first else made


class OnePass(nn.Module):
    """A model without a cache, whose positions are wrong in every pass."""

    def __init__(self, slip=None):
        super().__init__()
        torch.manual_seed(4)
        self.slip = slip
        self.embedding, self.attention = nn.Embedding(VOCABULARY, WIDTH), Attention(0, None)
        self.eval().requires_grad_(False)

    def forward(self, ids):
        queries, keys, values = self.attention.heads(self.embedding(ids))
        at = torch.arange(ids.shape[1])
        of_queries = of_keys = {
            "heads": torch.arange(HEADS)[:, None],
            "texts": torch.arange(len(ids))[:, None, None],
            "zeros": 0 * at,
        }.get(self.slip, at)
        of_keys = {"keys twice": 2 * at, "keys backward": -at, "keys not": 0 * at}.get(self.slip, of_keys)
        if self.slip != "none":
            queries, keys = rotated(queries, of_queries), rotated(keys, of_keys)
        return self.attention.attended(queries, keys, values) @ self.embedding.weight.T


class Padded(Model):
    """A model whose logits have more numbers than there are tokens, or that was left in training mode, with dropout."""

    def __init__(self, *, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.train(dropout > 0)

    def forward(self, ids, cache=None):
        return functional.pad(self.dropout(super().forward(ids, cache)), (0, 7))


class OwnClass(Model):
    """A class beside Transformers with its arguments: any config, or none, and masks of keys alone."""

    def __init__(self, config, slip=None):
        super().__init__(slip)
        self.config = config

    def forward(self, input_ids, past_key_values=None, attention_mask=None, position_ids=None, use_cache=False):
        cache = past_key_values or empty_cache(self)
        size, keys = input_ids.shape[1], cache[0].length + input_ids.shape[1]
        seen = causal(size, keys)
        if attention_mask is not None:
            seen = seen & attention_mask[:, None, None, :keys].bool()
        logits = self.logits(input_ids, cache, seen, position_ids)
        return SimpleNamespace(logits=logits, past_key_values=cache)


class Engine:
    """Code that serves a model: prompts are read one by one, and decoded as a batch padded on the left."""

    def __init__(self, slip=None):
        self.model, self.slip = OwnClass(None), slip

    def prefill(self, prompt):
        answer = self.model(prompt[None])
        return answer.logits[0, -1], answer.past_key_values

    def merge(self, states):
        longest = max(state[0].length for state in states)
        pads = torch.tensor([longest - state[0].length for state in states])
        merged = empty_cache(self.model)
        for layer, kept in enumerate(merged):
            kept.keys, kept.values = (
                torch.cat(
                    [
                        functional.pad(getattr(state[layer], name), (0, 0, longest - state[layer].length, 0))
                        for state in states
                    ]
                )
                for name in ("keys", "values")
            )
        return merged, pads

    def decode(self, state, token):
        cache, pads = state
        past = cache[0].length
        positions = past - pads[:, None] * (self.slip != "padding counted")
        mask = torch.arange(past + 1) >= pads[:, None]
        return self.model(token[:, None], cache, mask, positions).logits[:, -1], (cache, pads)


class PlacedEngine:
    """An engine whose decode is told the position of its token; its cache has room for so many tokens."""

    def __init__(self, slip=None, room=96):
        self.model, self.slip, self.chunk_size = Model(), slip, 24
        self.model.config = {"max_seq_len": room}

    def run(self, tokens, start, cache):
        tokens = tokens if tokens.ndim == 2 else tokens[None]
        long = self.slip == "long calls" and tokens.shape[1] > 18
        for layer in cache:
            layer.rows = 18 if long else None
        assert start + tokens.shape[1] <= self.model.config["max_seq_len"]
        return self.model.logits(tokens, cache)[0]

    def prefill(self, tokens):
        cache = [FixedRows(96) for _ in self.model.layers]
        return self.run(tokens, 0, cache), cache

    def decode(self, token, position, cache):
        for layer in cache:
            layer.length = position + (self.slip == "one further")
        return self.run(token.reshape(1, 1), position, cache)[0], cache


class FixedRows:
    """A cache of one size; of a call it writes the first ``rows`` keys."""

    def __init__(self, size):
        self.held, self.size, self.length, self.rows = None, size, 0, None

    def added(self, keys, values):
        if self.held is None:
            self.held = [torch.zeros(*keys.shape[:2], self.size, HEAD) for _ in range(2)]
        start, stop = self.length, self.length + keys.shape[2]
        for held, new in zip(self.held, (keys, values), strict=True):
            held[:, :, start:stop] = new
        if self.rows is not None:
            self.held[0][:, :, start + self.rows : stop] = 0
        self.length = stop
        return self.held[0][:, :, :stop].clone(), self.held[1][:, :, :stop].clone()


class RowsEngine:
    """An engine that keeps one cache for each prompt that was added, and goes on by a token for each."""

    def __init__(self, slip=None):
        self.model, self.slip, self.rows, self.steps = Model(), slip, [], 0

    def add(self, ids):
        self.rows.append(empty_cache(self.model))
        return self.model(torch.tensor(ids)[None], self.rows[-1])[0]

    def step(self, tokens):
        for own in self.rows:
            own.append(None)  # a row for the new token, also where the call fails then
        for own, token in zip(self.rows, list(tokens), strict=True):
            own.pop()
            assert len(own) == LAYERS, "a call before failed, and left a row"
            said = self.model(torch.tensor([[token]]), own)
        return said[0, -1]


class OtherFrequencies(Model):
    """Its frequencies are others in calls of more than 12 tokens."""

    def __init__(self, slip=None):
        super().__init__()
        self.register_buffer("frequencies", 500.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD), persistent=False)
        self.changes = slip == "changes"

    def forward(self, ids, cache=None):
        base = 50.0 if self.changes and ids.shape[1] > 12 else 500.0
        self.frequencies = base ** (-torch.arange(0, HEAD, 2).float() / HEAD)
        cache = cache or empty_cache(self)
        x = self.embedding(ids)
        for layer, kept in zip(self.layers, cache, strict=True):
            queries, keys, values = layer.heads(functional.layer_norm(x, (WIDTH,)))
            at = torch.arange(kept.length, kept.length + ids.shape[1])
            # A norm behind the rotation, so that what attention gets is no rotation of it.
            gain = torch.linspace(0.5, 2.0, HEAD)
            queries, keys = (rotated(each, at, base) * gain for each in (queries, keys))
            x = x + layer.attended(queries, *kept.added(keys, values))
        return functional.layer_norm(x, (WIDTH,)) @ self.embedding.weight.T


class KeepsOffset(Model):
    """Positions begin at a number that the first call of a text leaves in the model, or that the caller passes."""

    def __init__(self, slip=None):
        super().__init__()
        self.keeps, self.offset_of_text = slip == "kept", None

    def forward(self, ids, cache=None, offset_of_text=None, slip=None):
        assert slip is None, "an attribute that no call sets is no state of a text"
        cache = cache or empty_cache(self)
        if not cache[0].length:
            self.offset_of_text = ids[:, :1] % 5
        offset = self.offset_of_text if self.keeps or offset_of_text is None else offset_of_text
        at = offset + torch.arange(cache[0].length, cache[0].length + ids.shape[1])
        return self.logits(ids, cache, None, at)
