# cuBLASLt without a GPU: the test double that test_cublaslt opens ($FATHOM_LIBCUBLASLT), and a look at the real
# library, where there is one.
add_library(cublaslt-double SHARED ${CMAKE_CURRENT_LIST_DIR}/cublaslt_double.c)
target_link_libraries(cublaslt-double PRIVATE fathom-flags m)
set_target_properties(cublaslt-double PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
foreach(name test_cublaslt test_driver_matmul)
  if(TARGET ${name})
    add_dependencies(${name} cublaslt-double)
  endif()
endforeach()

fathom_program(real_cublaslt ${CMAKE_CURRENT_LIST_DIR}/real_cublaslt.c)
fathom_test(cublaslt-library real_cublaslt)
set_tests_properties(cublaslt-library PROPERTIES SKIP_RETURN_CODE 77)
