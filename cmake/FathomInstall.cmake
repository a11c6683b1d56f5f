# Installation: the program, both shared objects, the one header, suites of kernels to tune, a CMake package and a
# pkg-config file.
include(CMakePackageConfigHelpers)

if(TARGET fathom)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Fathom)
  install(TARGETS fathom EXPORT FathomTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT FathomTargets NAMESPACE Fathom:: DESTINATION ${package_dir})
  install(FILES include/fathom.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  configure_package_config_file(cmake/FathomConfig.cmake.in ${PROJECT_BINARY_DIR}/FathomConfig.cmake
                                INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/FathomConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/FathomConfig.cmake ${PROJECT_BINARY_DIR}/FathomConfigVersion.cmake
          DESTINATION ${package_dir})

  # Relative to the .pc file, so that an installed tree can be moved.
  file(RELATIVE_PATH FATHOM_PC_TO_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  configure_file(cmake/fathom.pc.in ${PROJECT_BINARY_DIR}/fathom.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/fathom.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

# Suites of kernels to tune, models, and records of tuning that come with Fathom. A build has the first two beside its
# library as an installation has them (api/places.c); what it was tuned to elsewhere stays out of its tests.
file(GLOB suite_files CONFIGURE_DEPENDS autotune/suites/*)
foreach(file IN LISTS suite_files)
  get_filename_component(name ${file} NAME)
  configure_file(${file} ${PROJECT_BINARY_DIR}/share/fathom/suites/${name} COPYONLY)
endforeach()
install(FILES ${suite_files} DESTINATION ${CMAKE_INSTALL_DATADIR}/fathom/suites)
file(GLOB model_files CONFIGURE_DEPENDS model/models/*)
foreach(file IN LISTS model_files)
  get_filename_component(name ${file} NAME)
  configure_file(${file} ${PROJECT_BINARY_DIR}/share/fathom/models/${name} COPYONLY)
endforeach()
install(FILES ${model_files} DESTINATION ${CMAKE_INSTALL_DATADIR}/fathom/models)
file(GLOB tuned_files CONFIGURE_DEPENDS autotune/tuned/*)
install(FILES ${tuned_files} DESTINATION ${CMAKE_INSTALL_DATADIR}/fathom/tuned)

if(TARGET fathom-cpu)
  install(TARGETS fathom-cpu LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET fathom-program)
  install(TARGETS fathom-program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(FATHOM_BUNDLE)
  install(DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/ DESTINATION ${CMAKE_INSTALL_LIBDIR}
          FILES_MATCHING PATTERN "*.so.*" PATTERN "libfathom*" EXCLUDE)
endif()
