"""bench/device/fathom_library.py against the library: its structs are those of fathom.h. Usage: LIBRARY SOURCE_DIR"""

import array
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(sys.argv[2], "bench/device"))
import fathom_library as fathom

TEXT = """graph @mix(%bank: f32[N, T, D], %w: f32[N]) {
  %h = weighted_sum %w, %bank over N : f32[T, D]
  return %h
}
"""

with tempfile.NamedTemporaryFile("w", suffix=".fir") as file:
    file.write(TEXT)
    file.flush()
    library = fathom.Library(sys.argv[1])
    executable = library.compile(file.name, {"N": 2, "D": 3}, "interp")
    try:
        library.compile(file.name, {"X": 2}, "interp")
    except fathom.Failure as failure:
        assert "X" in str(failure), failure
    else:
        raise AssertionError("an axis that is not there was bound")

buffers = {"bank": array.array("f", range(12)), "w": array.array("f", [1, 10]), "h": array.array("f", [0] * 6)}
shapes = {"bank": (2, 2, 3), "w": (2,), "h": (2, 3)}
run = executable.bind({name: fathom.Memory(buffer.buffer_info()[0], shapes[name], "f32", fathom.KDLCPU)
                       for name, buffer in buffers.items()}, None)
run()
assert list(buffers["h"]) == [i + 10.0 * (i + 6) for i in range(6)], buffers["h"]
