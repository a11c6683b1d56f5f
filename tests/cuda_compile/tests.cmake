# What the default schedules of the cuda target promise (guarantees.py), and how long NVRTC takes
# (nvrtc_time, a program to run by hand).
fathom_program(nvrtc_time ${CMAKE_CURRENT_LIST_DIR}/nvrtc_time.c)

# They look at what the compilers make, which a sanitizer would only slow down.
if(TARGET fathom-program AND NOT FATHOM_SANITIZE)
  foreach(what spills bytes sass)
    fathom_test(cuda-${what} ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/guarantees.py
                --program $<TARGET_FILE:fathom-program> ${what})
    set_tests_properties(cuda-${what} PROPERTIES SKIP_RETURN_CODE 77)
  endforeach()
  set_tests_properties(cuda-spills cuda-bytes PROPERTIES PROCESSORS 2)
endif()
