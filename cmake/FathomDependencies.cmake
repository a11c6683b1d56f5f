# Finds every library Fathom stands on and reports all that are missing at once, by Debian package.
#
#   what              found through            package              for
#   LLVM 19           its CMake package        llvm-19-dev          code generation of the cpu target (FATHOM_LLVM)
#   xxHash            pkg-config               libxxhash-dev        structural hashes, cache keys, digests
#   pthreadpool       FindPthreadpool.cmake    libpthreadpool-dev   running row tiles on several threads
#   cpuinfo           pkg-config               libcpuinfo-dev       naming the CPU and its caches
#   libyaml           pkg-config               libyaml-dev          tuning records, suites, models
#   DLPack            its CMake package        libdlpack-dev        the tensor struct of the public header
#   cmocka            pkg-config               libcmocka-dev        unit tests (FATHOM_TESTS)
#   lit, FileCheck    FindLit.cmake            llvm-19-tools        tests of the program's text output (FATHOM_TESTS)
#
# CUDA is not among them: nothing of it is needed to build. NVRTC, cuBLASLt and the driver are opened at run time,
# through entry points that Fathom declares itself.

set(FATHOM_MISSING "")
set(FATHOM_MISSING_PACKAGES "")

# fathom_need(FOUND WHAT PACKAGE): notes WHAT as missing when FOUND is false.
macro(fathom_need found what package)
  if(NOT ${found})
    string(APPEND FATHOM_MISSING "\n  ${what} (Debian package ${package})")
    list(APPEND FATHOM_MISSING_PACKAGES ${package})
  endif()
endmacro()

find_package(PkgConfig QUIET)
fathom_need(PkgConfig_FOUND "pkg-config" pkg-config)

if(FATHOM_LLVM)
  # Quietly: it looks for libraries that only static linking needs, and says so when they are not there.
  set(CMAKE_MESSAGE_LOG_LEVEL WARNING)
  find_package(LLVM 19.1 CONFIG QUIET HINTS /usr/lib/llvm-19)
  unset(CMAKE_MESSAGE_LOG_LEVEL)
  fathom_need(LLVM_FOUND "LLVM 19, or -DFATHOM_LLVM=OFF to do without the cpu target" llvm-19-dev)
endif()

if(PkgConfig_FOUND)
  pkg_check_modules(xxhash IMPORTED_TARGET QUIET libxxhash>=0.8)
  fathom_need(xxhash_FOUND "xxHash 0.8" libxxhash-dev)
  # Not its CMake package: Debian 12's names a static library that the package does not hold.
  pkg_check_modules(cpuinfo IMPORTED_TARGET QUIET libcpuinfo)
  fathom_need(cpuinfo_FOUND "cpuinfo" libcpuinfo-dev)
  pkg_check_modules(yaml IMPORTED_TARGET QUIET yaml-0.1>=0.2)
  fathom_need(yaml_FOUND "libyaml 0.2" libyaml-dev)
endif()

find_package(Pthreadpool QUIET)
fathom_need(Pthreadpool_FOUND "pthreadpool" libpthreadpool-dev)

find_package(dlpack CONFIG QUIET)
fathom_need(dlpack_FOUND "DLPack" libdlpack-dev)

if(FATHOM_TESTS)
  if(PkgConfig_FOUND)
    pkg_check_modules(cmocka IMPORTED_TARGET QUIET cmocka)
    fathom_need(cmocka_FOUND "cmocka" libcmocka-dev)
  endif()
  find_package(Lit QUIET)
  fathom_need(Lit_FOUND "LLVM's lit and FileCheck" llvm-19-tools)
endif()
find_package(Threads REQUIRED)

if(FATHOM_MISSING)
  list(JOIN FATHOM_MISSING_PACKAGES " " packages)
  message(FATAL_ERROR "Fathom needs what this machine lacks:${FATHOM_MISSING}\n"
                      "Install it with: apt-get install ${packages}\n(tools/setup does that.)")
endif()
