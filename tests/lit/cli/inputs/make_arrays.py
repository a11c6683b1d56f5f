# Arrays for the tests of `fathom run`: make_arrays.py FOLDER. Good ones first, then one file for each way an
# array can be wrong.
import os
import sys

import numpy as np

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)


def save(name, array):
    np.save(os.path.join(folder, name), array)


def write(name, data):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def header(text):
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


random = np.random.default_rng(1)
bank = random.standard_normal((3, 5, 4)).astype("<f4")
save("bank.npy", bank)
save("bank_fortran.npy", np.asfortranarray(bank))
save("query.npy", random.standard_normal(4).astype("<f4"))
save("empty.npy", np.zeros((3, 0, 4), "<f4"))

x = np.array([[1.0, -2.5, 3.0], [1.00390625, 65504.0, 1e-7]], "<f4")  # 1 + 2^-8 is a tie in bf16
save("x_f4.npy", x)
save("x_f2.npy", x.astype("<f2"))
bits = np.array([[0x3F80, 0xC020, 0x4040], [0x7F80, 0x0001, 0x8000]], "<u2")
save("x_u2.npy", bits)
save("x_v2.npy", bits.view("|V2"))
save("x_u1.npy", np.array([[0x38, 0xC5, 0x01], [0x7E, 0x80, 0x7F]], "|u1"))
save("banked.npy", np.arange(12, dtype="<f4").reshape(2, 2, 3))

save("f8.npy", bank.astype("<f8"))
save("big_endian.npy", bank.astype(">f4"))
save("integers.npy", bank.astype("<i4"))
save("rank.npy", bank[0])
save("width.npy", bank[:, :, :3])
save("tokens.npy", bank[:, :2])
good = open(os.path.join(folder, "bank.npy"), "rb").read()
write("truncated.npy", good[:-1])
write("header_only.npy", good[:20])
write("trailing.npy", good + b"\0")
write("text.npy", b"these are no numbers\n")
write("nothing.npy", b"")
write("huge.npy", header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1000000000000, 4)}"))
write("overflow.npy", header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4611686018427387904, 4)}"))
write("negative.npy", header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, -1, 4)}"))
write("header_size.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{")
