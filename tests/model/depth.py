"""Whole depths on Fathom: the same descriptions, parameters and toy sublayers as in reference.py."""

import os
import tempfile

import numpy as np

import fathom
import reference


def to_bits(values, dtype):
    """f64 values that the dtype holds, as an array that the library takes."""
    single = np.array(values, np.float32, order="C")
    if dtype == "bf16":
        return (single.view(np.uint32) >> 16).astype(np.uint16)
    return single.astype(np.float16) if dtype == "f16" else single


def from_bits(array):
    """An array of the library's, as f64."""
    if array.dtype == np.uint8:
        return reference.decode_e4m3(array)
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def empty(dtype, *shape):
    kinds = {"bf16": np.uint16, "f16": np.float16, "f32": np.float32, "f8e4m3": np.uint8}
    # What nobody writes is not a number in any of them.
    array = np.empty(shape, kinds[dtype])
    array.view(np.uint8)[...] = 0xFF
    return array


def write_description(description, folder):
    """A dict as a YAML file; its path."""
    import yaml

    path = os.path.join(folder, description.get("name", "model") + ".yaml")
    with open(path, "w") as file:
        yaml.safe_dump(description, file)
    return path


def open_model(description, parameters=None, **options):
    """(reference.Model, fathom.Model with its parameters bound, parameters). description: a dict or a name."""
    if isinstance(description, dict):
        with tempfile.TemporaryDirectory() as folder:
            path = write_description(description, folder)
            model, compiled = reference.load(path), fathom.Model(path, **options)
    else:
        model, compiled = reference.load(description), fathom.Model(description, **options)
    if parameters is None:
        parameters = reference.random_parameters(model, seed=1)
    table = model.parameters()
    assert {p.name: (p.shape, p.dtype) for p in compiled.parameters} == table
    compiled.bind({name: to_bits(values, table[name][1]) for name, values in parameters.items()})
    return model, compiled, parameters


def site_outputs(model, compiled, site, rows):
    """Arrays for the extra outputs of a site."""
    heads = (model.heads,) if model.heads > 1 else ()
    shapes = {
        "scale": ("f32", rows),
        "weights": ("f32", compiled.sources[site], rows, *heads),
        "entropy": ("f32", rows, *heads),
        "mix": (model.dtype, rows, model.hidden),
    }
    return {name: empty(*shapes[name]) for name in extra_names(compiled, site)}


def extra_names(compiled, site):
    """What a site gives besides an input. The network's output is never in fp8."""
    names = [name for name in compiled.outputs if name != "fp8"]
    return names + ["scale"] * ("fp8" in compiled.outputs and site < compiled.sublayers)


class Site:
    """What a site gave, as arrays of the library's."""

    def __init__(self, x, extras):
        self.x, self.extras = x, extras


def run(model, compiled, embedding, sublayers, sequence=None, chunks=None):
    """All L + 1 sites for an embedding [T, D] in f64. sublayers(j, x) as in reference.run. chunks: sizes of the
    pieces that the tokens are taken in."""
    sequence = sequence or fathom.Sequence(compiled)
    pieces, start = [], 0
    for size in chunks or [len(embedding)]:
        part = slice(start, start + size)
        pieces.append(run_chunk(model, compiled, embedding[part], sublayers, sequence, part))
        start += size
    return [
        Site(
            np.concatenate([piece[s].x for piece in pieces]),
            {
                name: np.concatenate(
                    [piece[s].extras[name] for piece in pieces], axis=1 if name == "weights" else 0
                )
                for name in extra_names(compiled, s)
            },
        )
        for s in range(compiled.sites)
    ]


def run_chunk(model, compiled, embedding, sublayers, sequence, part):
    rows, sites = len(embedding), []
    for s in range(compiled.sites):
        fp8 = "fp8" in compiled.outputs and s < compiled.sublayers
        x = empty("f8e4m3" if fp8 else model.dtype, rows, model.hidden)
        extras = site_outputs(model, compiled, s, rows)
        if s == 0:
            sequence.begin(to_bits(embedding, model.dtype), x, **extras)
        else:
            given = sublayers(s - 1, from_bits(sites[-1].x), part)
            given = given if isinstance(given, tuple) else (given,)
            addends = [to_bits(addend, model.dtype) for addend in given]
            last = s == compiled.sublayers
            sequence.end(addends, x, **extras) if last else sequence.site(s, addends, x, **extras)
        sites.append(Site(x, extras))
    return sites


def recorded(model, results):
    """Sublayers that give what the reference's gave, whatever they are given: then errors do not add up."""
    toy = reference.toy_sublayers(model)
    outputs = [toy(j, results[j].x) for j in range(model.sublayers)]

    def sublayers(j, x, part):
        given = outputs[j] if isinstance(outputs[j], tuple) else (outputs[j],)
        return tuple(addend[part] for addend in given)

    return sublayers


def live(model):
    """The toy sublayers, of what Fathom gave."""
    toy = reference.toy_sublayers(model)
    return lambda j, x, part: toy(j, x)
