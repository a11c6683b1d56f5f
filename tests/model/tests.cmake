# Whole depths. reference.py is NumPy written from the formulas, test_depth.py compares Fathom with it through the
# Python package. Python loads libfathom as it is, without a sanitizer's runtime.

fathom_test(model-reference ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/test_reference.py)
# Beside the packages it has to agree with: skipped, with the reason, where none is installed.
fathom_test(model-peers ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/peers_semantics.py)
set_tests_properties(model-peers PROPERTIES SKIP_RETURN_CODE 77)

# fathom_depth(NAME ARGUMENT...): test_depth.py with these arguments.
function(fathom_depth name)
  fathom_test(${name} ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/model/test_depth.py ${ARGN})
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
               "PYTHONPATH=${PROJECT_SOURCE_DIR}/bindings/python" "PYTHONDONTWRITEBYTECODE=1"
               "FATHOM_LIBRARY=$<TARGET_FILE:fathom>" "FATHOM_PROGRAM=$<TARGET_FILE:fathom-program>")
endfunction()

if(TARGET fathom-program AND NOT FATHOM_SANITIZE)
  set(models ${PROJECT_SOURCE_DIR}/model/models)
  fathom_depth(model-depth-interp --target interp)
  fathom_depth(model-depth-cuda --target cuda-emu --rows 3 --every 4)
  if(TARGET fathom-cpu)
    fathom_depth(model-depth
                 --models ${models}/kimi-k3.yaml,${models}/kimi-linear-48b.yaml,${models}/gpt-small.yaml)
  endif()
  # The bytes that the plan counts, against those that the emulator sees.
  foreach(phases one two)
    fathom_test(model-traffic-${phases} $<TARGET_FILE:fathom-program> check kimi-k3 --target cuda-emu --size 1
                --phases ${phases})
    set_tests_properties(model-traffic-${phases} PROPERTIES PASS_REGULAR_EXPRESSION
                         "planned: (0\\.99|1\\.00|1\\.01).*187 of 187 within bounds")
  endforeach()
endif()
