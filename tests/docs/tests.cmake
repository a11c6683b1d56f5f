# The documentation against the tree: its op table, the graphs and commands it shows, and the example
# that docs/embedding.md leans on.
fathom_test(docs-op-table ${PROJECT_SOURCE_DIR}/tools/op-table --check)

if(TARGET fathom-program)
  fathom_test(docs ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/check_docs.py
              ${PROJECT_SOURCE_DIR} $<TARGET_FILE:fathom-program>)
endif()

if(TARGET fathom AND TARGET fathom-cpu)
  add_executable(example-embed ${PROJECT_SOURCE_DIR}/examples/embed.c)
  target_link_libraries(example-embed PRIVATE fathom-flags fathom Threads::Threads)
  set_target_properties(example-embed PROPERTIES BUILD_RPATH $ORIGIN/../lib
                        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  add_dependencies(example-embed fathom-cpu)
  fathom_test(example-embed example-embed ${PROJECT_SOURCE_DIR}/examples/k3_site.fir)
  set_tests_properties(example-embed PROPERTIES LABELS threads)
endif()
