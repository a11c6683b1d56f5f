# LLVM's text test runner: lit.py, FileCheck and not. Sets Lit_PROGRAM (run by Python3_EXECUTABLE) and
# Lit_TOOLS_DIR, the folder of FileCheck and not.
#
# Python is the system's where there is one: that is where python3-numpy, which some tests need, is installed.
find_program(Python3_EXECUTABLE python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(Python3_EXECUTABLE python3)
find_file(Lit_PROGRAM lit.py
          PATHS /usr/lib/llvm-19/build/utils/lit ${LLVM_INSTALL_PREFIX}/build/utils/lit NO_DEFAULT_PATH)
find_path(Lit_TOOLS_DIR NAMES FileCheck
          PATHS /usr/lib/llvm-19/bin ${LLVM_TOOLS_BINARY_DIR} NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Lit REQUIRED_VARS Lit_PROGRAM Lit_TOOLS_DIR Python3_EXECUTABLE)
mark_as_advanced(Lit_PROGRAM Lit_TOOLS_DIR)
