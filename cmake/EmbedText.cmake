# Text that the library carries: fathom_embed(TARGET FILE SYMBOL) adds
#
#   const char SYMBOL[];    the bytes of FILE (relative to the source tree) and a final 0
#
# to TARGET, generated again whenever FILE changes. The declaration is written by hand where it is used. An
# array of numbers rather than a string literal: ISO C promises literals of 4095 characters only.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${INPUT} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "(0x0a,)" "\\1\n  " bytes "${bytes}") # a line of text, a line of numbers
  file(WRITE ${OUTPUT} "// Generated from ${NAME}.\n"
                       "extern const char ${SYMBOL}[];\n"
                       "const char ${SYMBOL}[] = {\n  ${bytes}0\n};\n")
  return()
endif()

set(FATHOM_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(fathom_embed target file symbol)
  set(input ${PROJECT_SOURCE_DIR}/${file})
  set(output ${PROJECT_BINARY_DIR}/generated/${symbol}.c)
  add_custom_command(OUTPUT ${output} VERBATIM COMMENT "Embedding ${file}"
                     COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DOUTPUT=${output} -DNAME=${file}
                             -DSYMBOL=${symbol} -P ${FATHOM_EMBED_SCRIPT}
                     DEPENDS ${input} ${FATHOM_EMBED_SCRIPT})
  target_sources(${target} PRIVATE ${output})
endfunction()
