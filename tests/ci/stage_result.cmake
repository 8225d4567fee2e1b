# cmake -D STAGE=PATH -P stage_result.cmake: fails if the stage failed, showing the end of its log,
# or if it never ran.
if(NOT EXISTS ${STAGE}.rc)
  message(FATAL_ERROR "this stage never ran")
endif()
file(STRINGS ${STAGE}.rc result)
string(REPLACE " " ";" result ${result})
list(GET result 0 exit_code)
list(GET result 1 elapsed_s)
if(NOT exit_code EQUAL 0)
  execute_process(COMMAND tail -n 60 ${STAGE}.log)
  message(FATAL_ERROR "exit code ${exit_code} after ${elapsed_s} s")
endif()
message(STATUS "passed in ${elapsed_s} s")
