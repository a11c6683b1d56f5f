# A graph whose kernel needs more room for its arguments than a launch has.
COUNT = 1023
names = [f"%p{i}" for i in range(COUNT)]
print(f"graph @many({', '.join(f'{name}: f32[B=4, T, D=32]' for name in names)}) {{")
print(f"  %v = concat {', '.join(names)} over B to N : f32[N, T, D]")
print("  %y = mean %v over N : f32[T, D]")
print("  return %y\n}")
