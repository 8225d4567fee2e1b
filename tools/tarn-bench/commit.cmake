# Writes OUT, a header with the commit of ROOT: with "+" where files differ from it, and empty where
# there is no git. OUT is left alone where nothing changed.
find_package(Git QUIET)
set(commit "")
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -c "safe.directory=${ROOT}" -C "${ROOT}"
                          describe --always --exclude=* --abbrev=12 --dirty=+
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT "${OUT}" CONTENT "#define TARN_COMMIT \"@commit@\"\n" @ONLY)
