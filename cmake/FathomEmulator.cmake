# The emulator (codegen/emulator/) is part of fathom-codegen. What is special about it:
#
# - The texts that stand above each kernel it compiles are carried in the library.
# - Its threads are stacks that take turns. ThreadSanitizer counts calls and returns a host thread, which such
#   switches upset, so it leaves these files alone; a launch shares nothing but the device's list of machines.
fathom_embed(fathom-codegen codegen/emulator/emulator_abi.h emu_abi_text)
fathom_embed(fathom-codegen codegen/emulator/prelude_emulator.hpp emu_prelude_text)

file(GLOB emulator_sources CONFIGURE_DEPENDS codegen/emulator/*.c)
if(FATHOM_SANITIZE MATCHES thread)
  set_property(SOURCE ${emulator_sources} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=thread)
elseif(FATHOM_SANITIZE MATCHES address AND CMAKE_C_COMPILER_ID STREQUAL Clang)
  # A second stack for each fiber of each block would be made and thrown away.
  set_property(SOURCE ${emulator_sources} APPEND PROPERTY COMPILE_OPTIONS
               -fsanitize-address-use-after-return=never)
endif()
