# Prints a graph that is one long chain of the op.
import sys

op, length = sys.argv[1], int(sys.argv[2])
print("graph @chain(%x: f32[T, D=16], %q: f32[D]) {\n  %v0 = sigmoid %x : f32[T, D]")
for i in range(1, length):
    print(f"  %v{i} = {op} %v{i - 1}, %q : f32[T, D]")
print(f"  %z = dot %v{length - 1}, %q over D : f32[T]\n  return %z\n}}")
