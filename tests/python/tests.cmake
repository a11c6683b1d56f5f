# The Python package. Without PyTorch its tests say so and count as skipped.

if(TARGET fathom-cpu AND NOT FATHOM_SANITIZE)
  foreach(case python-torch:tests/python/test_torch.py python-tiny-lm:examples/tiny_lm.py)
    string(REPLACE ":" ";" case ${case})
    list(GET case 0 name)
    list(GET case 1 file)
    fathom_test(${name} ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/${file})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
                 "PYTHONPATH=${PROJECT_SOURCE_DIR}/bindings/python" "PYTHONDONTWRITEBYTECODE=1"
                 "FATHOM_LIBRARY=$<TARGET_FILE:fathom>")
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
  endforeach()
endif()
