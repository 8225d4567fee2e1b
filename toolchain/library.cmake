# libtarn.a: every module, linked into one relocatable object whose global symbols are tarn_* alone,
# so that a host can link it beside anything else (DESIGN: a guest in its host's process). What
# it calls of libmd.a is in it, under local names.
get_property(modules GLOBAL PROPERTY TARN_MODULES)

# What our own tools and tests link: the same objects with their C++ names visible.
add_library(tarn_core INTERFACE)
set(library_objects "")
set(library_modules "")
foreach(module ${modules})
  get_target_property(type ${module} TYPE)
  if(type STREQUAL "OBJECT_LIBRARY")
    target_sources(tarn_core INTERFACE $<TARGET_OBJECTS:${module}>)
    list(APPEND library_objects $<TARGET_OBJECTS:${module}>)
    list(APPEND library_modules ${module})
  endif()
endforeach()
target_include_directories(tarn_core INTERFACE ${CMAKE_SOURCE_DIR})
target_link_libraries(tarn_core INTERFACE ${TARN_URING_LIBRARY} ${TARN_LIBMD} ${TARN_CUDART}
                      Threads::Threads)

set(one_object ${CMAKE_BINARY_DIR}/libtarn.o)
set(archive ${CMAKE_BINARY_DIR}/libtarn.a)
add_custom_command(
  OUTPUT ${archive}
  # Section groups are dissolved: a group whose name became local could otherwise be thrown away in
  # favour of the host's copy of the same template, and our references would point into nothing.
  COMMAND ${CMAKE_CXX_COMPILER} -r -nostdlib -Wl,--force-group-allocation -o ${one_object}
          ${library_objects} ${TARN_LIBMD}
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=tarn_* ${one_object}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
  COMMAND ${CMAKE_AR} qcs ${archive} ${one_object}
  DEPENDS ${library_objects}
  COMMAND_EXPAND_LISTS VERBATIM
  COMMENT "Linking libtarn.a")
add_custom_target(tarn_archive ALL DEPENDS ${archive})
add_dependencies(tarn_archive ${library_modules})  # make, unlike Ninja, looks no object's rule up
set(TARN_ARCHIVE ${archive})
