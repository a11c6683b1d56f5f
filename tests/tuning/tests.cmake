# The tuner against candidates that misbehave: test_planted starts tuning-worker, which compiles with
# planted-cpu/libfathom-cpu.so.
if(TARGET fathom-cpu)
  set(folder ${CMAKE_CURRENT_LIST_DIR})
  add_library(planted-cpu MODULE ${folder}/planted_cpu.c)
  target_include_directories(planted-cpu PRIVATE ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(planted-cpu PRIVATE fathom-flags ${CMAKE_DL_LIBS})
  set_target_properties(planted-cpu PROPERTIES PREFIX lib OUTPUT_NAME fathom-cpu LIBRARY_OUTPUT_DIRECTORY
                        ${CMAKE_CURRENT_BINARY_DIR}/planted-cpu)
  fathom_program(tuning-worker ${folder}/worker.c ${folder}/planted_cuda.c)
  target_link_options(tuning-worker PRIVATE -Wl,--wrap=cg_cuda_target)
  fathom_program(test_planted ${folder}/test_planted.c)
  target_link_libraries(test_planted PRIVATE PkgConfig::cmocka)
  add_dependencies(test_planted planted-cpu tuning-worker)
  fathom_test(test_planted test_planted)
  set_property(TEST test_planted APPEND PROPERTY ENVIRONMENT
               "FATHOM_TEST_WORKER=$<TARGET_FILE:tuning-worker>"
               "FATHOM_TEST_REAL_CPU=$<TARGET_FILE:fathom-cpu>"
               "FATHOM_LIBRARY_DIR=${CMAKE_CURRENT_BINARY_DIR}/planted-cpu")
endif()

# Tuners that are killed, eight at once, and a suite that is interrupted. Sanitizers slow them down beyond their time-outs.
if(TARGET fathom-cpu AND TARGET fathom-program AND NOT FATHOM_SANITIZE)
  foreach(what kill many suite)
    fathom_test(tuning-${what} ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/interrupted.py
                --program $<TARGET_FILE:fathom-program> ${what})
  endforeach()
endif()
