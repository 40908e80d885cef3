# In the environment, HOROVOD_WITH_<NAME>=1 fails the build where a library that it can do without was not found,
# and HOROVOD_WITHOUT_<NAME>=1 leaves the library out; nothing looks for it then.

# hvd_is_left_out(<NAME> <result>)
function(hvd_is_left_out name result)
  set(left_out OFF)
  if("$ENV{HOROVOD_WITHOUT_${name}}" STREQUAL "1")
    set(left_out ON)
    if("$ENV{HOROVOD_WITH_${name}}" STREQUAL "1")
      message(FATAL_ERROR "HOROVOD_WITH_${name}=1 and HOROVOD_WITHOUT_${name}=1 are both set. Unset one of them.")
    endif()
  endif()
  set(${result} ${left_out} PARENT_SCOPE)
endfunction()

# hvd_optional(<NAME> <found> <what> <packages>): sets HVD_HAS_<NAME>.
function(hvd_optional name found what packages)
  if("$ENV{HOROVOD_WITH_${name}}" STREQUAL "1" AND NOT found)
    message(FATAL_ERROR
      "HOROVOD_WITH_${name}=1, but the build does not find ${what}. Install them "
      "(Debian and Ubuntu: ${packages}), or unset HOROVOD_WITH_${name}.")
  endif()
  set(has OFF)
  if(found)
    set(has ON)
  endif()
  set(HVD_HAS_${name} ${has} PARENT_SCOPE)
  set_property(GLOBAL PROPERTY HVD_HAS_${name} ${has})
endfunction()

# hvd_stamp(<headers>): sets HVD_STAMP, a definition of HVD_LIBRARY_STAMP that changes with the headers.
# A module and the core that loads it must have been compiled with the same ones.
function(hvd_stamp)
  set(all "")
  foreach(header ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
    file(SHA256 ${CMAKE_CURRENT_SOURCE_DIR}/${header} digest)
    string(APPEND all ${digest})
  endforeach()
  string(SHA256 stamp "${all}")
  set(HVD_STAMP HVD_LIBRARY_STAMP="${stamp}" PARENT_SCOPE)
endfunction()

# hvd_module(<name> SOURCES <files> USES <layers>)
# The file _<name>.so, which the core loads where a job asks for that library.
function(hvd_module name)
  cmake_parse_arguments(MODULE "" "" "SOURCES;USES" ${ARGN})
  hvd_targets(uses ${MODULE_USES})
  add_library(hvd_${name} MODULE ${MODULE_SOURCES})
  set_target_properties(hvd_${name} PROPERTIES PREFIX "" OUTPUT_NAME _${name})
  target_include_directories(hvd_${name} PRIVATE ${PROJECT_SOURCE_DIR}/core)
  target_link_libraries(hvd_${name} PRIVATE ${uses} Threads::Threads)
  target_compile_definitions(hvd_${name} PRIVATE ${HVD_STAMP})
  target_link_options(hvd_${name} PRIVATE -Wl,--exclude-libs,ALL)
  set_property(GLOBAL APPEND PROPERTY HVD_OPTIONAL_TARGETS hvd_${name})
endfunction()
