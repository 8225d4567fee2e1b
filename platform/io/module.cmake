# Builds one of the two folders for the ring: absence is a folder.
if(TARN_URING)
  set(absent no_uring)
else()
  set(absent uring)
endif()
set_source_files_properties(${CMAKE_SOURCE_DIR}/platform/io/${absent}/uring_backend.cpp
                            PROPERTIES HEADER_FILE_ONLY TRUE)
