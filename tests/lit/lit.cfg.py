# lit configuration of the text tests. A test is a .fir (or .test) file with RUN lines:
#
#   // RUN: %fathom opt --passes=canonicalize %s | FileCheck %s
#
# Substitutions: %fathom the program, %data tests/data, %examples the examples, %python an interpreter with
# numpy, %doubles the folder of libcuda-double.so and libnvrtc-double.so, %t a temporary name of this test. Tools on the path: FileCheck, not, count.
# Features for REQUIRES and UNSUPPORTED: sanitizer.
import os
import sys

import lit.formats

config.name = "fathom"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".fir", ".test"]
config.excludes = ["inputs"]
config.test_source_root = os.path.dirname(__file__)

site_config = lit_config.params.get("site_config")
if not site_config:
    lit_config.fatal("run lit through ctest, or pass --param site_config=BUILD/tests/lit/lit.site.cfg.py")
exec(open(site_config).read())

config.test_exec_root = os.path.join(config.binary_dir, "tests", "lit")
config.substitutions += [
    ("%fathom", os.path.join(config.binary_dir, "bin", "fathom")),
    ("%data", os.path.join(config.source_dir, "tests", "data")),
    ("%examples", os.path.join(config.source_dir, "examples")),
    ("%python", sys.executable),
    ("%doubles", os.path.join(config.binary_dir, "tests")),
]
if config.sanitize:
    config.available_features.add("sanitizer")

config.environment["PATH"] = config.tools_dir + os.pathsep + os.environ["PATH"]
config.environment["FATHOM_CACHE"] = os.path.join(config.test_exec_root, "cache")
for name in ("ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
