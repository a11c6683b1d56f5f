# pthreadpool ships neither a CMake package nor a .pc file. Defines pthreadpool::pthreadpool.
find_path(Pthreadpool_INCLUDE_DIR pthreadpool.h)
find_library(Pthreadpool_LIBRARY pthreadpool)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Pthreadpool REQUIRED_VARS Pthreadpool_LIBRARY Pthreadpool_INCLUDE_DIR)
mark_as_advanced(Pthreadpool_INCLUDE_DIR Pthreadpool_LIBRARY)

if(Pthreadpool_FOUND AND NOT TARGET pthreadpool::pthreadpool)
  add_library(pthreadpool::pthreadpool UNKNOWN IMPORTED)
  set_target_properties(pthreadpool::pthreadpool PROPERTIES
                        IMPORTED_LOCATION ${Pthreadpool_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${Pthreadpool_INCLUDE_DIR})
endif()
