# Copies the shared libraries that FILES need, and that are not part of libc, into TO, under the names they are
# looked for by. Run by `cmake -P`; OBJDUMP lists what a file needs.
#
# $ORIGIN rpaths then find the copies before those of the system. What libc, its parts and the dynamic linker are
# called does not change from one Linux to another, and they cannot be taken along without each other.
set(CMAKE_GET_RUNTIME_DEPENDENCIES_PLATFORM linux+elf)
set(CMAKE_GET_RUNTIME_DEPENDENCIES_TOOL objdump)
set(CMAKE_GET_RUNTIME_DEPENDENCIES_COMMAND ${OBJDUMP})
file(GET_RUNTIME_DEPENDENCIES
     EXECUTABLES ${FILES}
     RESOLVED_DEPENDENCIES_VAR needed
     PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread)\\.so\\." "^ld-linux" "^libfathom")
foreach(library IN LISTS needed)
  file(COPY ${library} DESTINATION ${TO} FOLLOW_SYMLINK_CHAIN)
endforeach()
