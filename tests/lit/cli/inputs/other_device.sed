2,7s/^  name: .*/  name: "The \\"9\\", \\e[31mred"/
s/compiler: LLVM 3.4/compiler: LLVM 19.1.7/
