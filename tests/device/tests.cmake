# What runs where there is a GPU, and here against the doubles of NVIDIA's libraries: the tests that need a device, and
# bench/device.sh, with lists that take a minute.

fathom_program(device_runs device/device_runs.c device/device_fixture.c)
target_link_libraries(device_runs PRIVATE PkgConfig::cmocka)
add_dependencies(device_runs cuda-double nvrtc-double)
set(device_environment "${test_environment}"
    "FATHOM_LIBCUDA=${CMAKE_CURRENT_BINARY_DIR}/libcuda-double.so"
    "FATHOM_LIBNVRTC=${CMAKE_CURRENT_BINARY_DIR}/libnvrtc-double.so"
    "FATHOM_LIBCUBLASLT=${CMAKE_CURRENT_BINARY_DIR}/libcublaslt-double.so")
fathom_test(device-runs device_runs)
set_tests_properties(device-runs PROPERTIES ENVIRONMENT "${device_environment}")

# Python and the script load libfathom as it is, without a sanitizer's runtime.
if(TARGET fathom-program AND TARGET bench-strategies AND NOT FATHOM_SANITIZE)
  fathom_test(device-script ${CMAKE_CURRENT_LIST_DIR}/test-script ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  set_tests_properties(device-script PROPERTIES ENVIRONMENT "${device_environment}")
  fathom_test(device-library ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/test_ctypes.py $<TARGET_FILE:fathom>
              ${PROJECT_SOURCE_DIR})
endif()
