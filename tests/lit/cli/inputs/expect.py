# Checks results of `fathom run`: expect.py CASE FOLDER FILE... Every case computes what it expects with numpy from
# the arrays of make_arrays.py.
import os
import sys

import numpy as np

case, folder, files = sys.argv[1], sys.argv[2], sys.argv[3:]


def load(name):
    return np.load(os.path.join(folder, name))


def round_bf16(x):
    """To nearest even, as bits of bf16."""
    bits = x.astype("<f4").view("<u4").astype("<u8")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def widen(bits):
    return (bits.astype("<u4") << 16).view("<f4")


# The numbers that the codes 0 to 126 of f8e4m3 stand for; 127 is NaN, and the eighth bit is the sign.
F8 = np.array([m / 512 if e == 0 else (8 + m) * 2.0 ** (e - 10) for e in range(16) for m in range(8)])[:127]


def round_f8(x):
    """To nearest even and at most 448, as codes of f8e4m3."""
    size = np.abs(x.astype("f8"))
    middles = (F8[:-1] + F8[1:]) / 2
    low, high = np.searchsorted(middles, size, "left"), np.searchsorted(middles, size, "right")
    code = np.where(low % 2 == 0, low, high)  # they differ at a middle
    return (np.where(np.isnan(x), 127, code) + 128 * np.signbit(x)).astype("|u1")


def widen_f8(codes):
    numbers = np.append(F8, np.nan)[codes & 127]
    return np.where(codes & 128, -numbers, numbers).astype("<f4")


def same(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape, (found.dtype, found.shape)
    assert np.array_equal(found, expected, equal_nan=found.dtype.kind == "f"), (found, expected)


def mix():
    h, a = map(np.load, files)
    bank, query = load("bank.npy").astype("f8"), load("query.npy").astype("f8")
    z = np.exp(bank @ query)
    weights = z / z.sum(0)
    assert h.dtype == a.dtype == np.dtype("<f4") and h.shape == (5, 4) and a.shape == (3, 5)
    assert np.allclose(a, weights, rtol=1e-5) and np.allclose(h, (weights[:, :, None] * bank).sum(0), rtol=1e-5)


def empty():
    h, a = map(np.load, files)
    assert h.shape == (0, 4) and a.shape == (3, 0)


def equal():
    for other in files[1:]:
        assert open(files[0], "rb").read() == open(other, "rb").read(), other


def f32():
    same(np.load(files[0]), 2 * load("x_f4.npy"))


def bf16():
    x = widen(round_bf16(load("x_f4.npy")))
    expected = round_bf16(2 * x)
    same(np.load(files[0]), widen(expected))
    same(np.load(files[1]), expected)


def bits():
    expected = round_bf16(2 * widen(load("x_u2.npy")))
    for file in files:
        same(np.load(file), expected)


def f16():
    with np.errstate(over="ignore"):
        expected = (2 * load("x_f2.npy").astype("<f4")).astype("<f2")
    for file in files:
        same(np.load(file), expected)


def f8e4m3():
    same(np.load(files[0]), round_f8(2 * widen_f8(load("x_u1.npy"))))
    expected = round_f8(2 * widen_f8(round_f8(load("x_f4.npy"))))
    same(np.load(files[1]), widen_f8(expected))
    same(np.load(files[2]), expected)


def layout():
    same(np.load(files[0]), load("banked.npy").sum(0))


def make_narrowing():
    """Every f16, bf16 and f8e4m3 number, the midpoints between neighbours, what lies beside them, and odd ones."""
    halves = np.arange(1 << 16, dtype="<u4").astype("<u2")
    middles = []
    for numbers in (halves.view("<f2").astype("<f4"), widen(halves), F8.astype("<f4")):
        finite = np.unique(np.abs(numbers[np.isfinite(numbers)]))
        middles.append(((finite[:-1].astype("f8") + finite[1:]) / 2).astype("<f4"))
        middles.append(finite)
    near = np.concatenate(middles)
    odd = np.array([np.inf, np.nan, 65519.998, 65520, 3.4028235e38, 2.9802322e-08, 2.9802326e-08], "<f4")
    x = np.concatenate([near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(0)), odd])
    np.save(files[0], np.concatenate([x, -x]))


def check_narrowing():
    x, as_bf16, as_f16, as_f8 = map(np.load, files)
    nan = np.isnan(x)
    assert np.isnan(widen(as_bf16[nan])).all()
    same(as_bf16[~nan], round_bf16(x[~nan]))
    with np.errstate(over="ignore"):
        same(as_f16, x.astype("<f2"))
    same(widen_f8(as_f8), widen_f8(round_f8(x)))


globals()[case]()
