# Writes OUTPUT, a header with a digest of everything that decides what code the cpu target makes. It is part of the
# object cache's keys: a cache never serves what another version of the generator made. Run by `cmake -P`.
set(digests "")
foreach(source IN LISTS SOURCES)
  file(SHA256 ${source} digest)
  string(APPEND digests ${digest})
endforeach()
string(SHA256 digest "${digests}")
file(WRITE ${OUTPUT} "// Made by cmake/GeneratorId.cmake.\n#define CG_GENERATOR_ID \"${digest}\"\n")
