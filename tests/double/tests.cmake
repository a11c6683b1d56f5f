# The doubles of NVIDIA's libraries (double.h), and the tests that use them. The programs find them beside
# themselves, so that no path is compiled in.

# fathom_double(TARGET FILE SOURCE...): a shared object that stands for a library.
function(fathom_double name file)
  add_library(${name} MODULE ${ARGN})
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE fathom-codegen fathom-flags)
  set_target_properties(${name} PROPERTIES PREFIX "" OUTPUT_NAME ${file} C_VISIBILITY_PRESET hidden
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  # What is linked in shows nothing but the double's own symbols.
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL)
endfunction()

fathom_double(cuda-double libcuda-double double/libcuda_double.c double/image.c double/run.c)
fathom_double(nvrtc-double libnvrtc-double double/libnvrtc_double.c double/cubin_writer.c)

file(GLOB driver_tests CONFIGURE_DEPENDS unit/test_driver*.c)
foreach(source IN LISTS driver_tests)
  get_filename_component(name ${source} NAME_WE)
  target_sources(${name} PRIVATE double/cuda_fixture.c double/cubin_writer.c)
  add_dependencies(${name} cuda-double nvrtc-double)
endforeach()
