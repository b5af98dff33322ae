# SPDX-License-Identifier: MIT OR Apache-2.0
# find_package(turbolane): the targets turbolane::turbolane, the whole library, and
# turbolane::hint, the hints alone. Both have the header turbolane.h.

get_filename_component(_turbolane_libraries "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
# Debian's libraries are a folder deeper than those of others.
find_path(_turbolane_include turbolane.h
  PATHS "${_turbolane_libraries}/../../include" "${_turbolane_libraries}/../include"
  NO_DEFAULT_PATH NO_CACHE)

foreach(_turbolane_name turbolane turbolane_hint)
  string(REPLACE "turbolane_" "" _turbolane_target "${_turbolane_name}")
  set(_turbolane_library "${_turbolane_libraries}/lib${_turbolane_name}.so")
  if(NOT _turbolane_include OR NOT EXISTS "${_turbolane_library}")
    set(turbolane_FOUND FALSE)
    set(turbolane_NOT_FOUND_MESSAGE "turbolane.h or ${_turbolane_library} is missing")
    return()
  endif()
  if(NOT TARGET turbolane::${_turbolane_target})
    add_library(turbolane::${_turbolane_target} SHARED IMPORTED)
    set_target_properties(turbolane::${_turbolane_target} PROPERTIES
      IMPORTED_LOCATION "${_turbolane_library}"
      INTERFACE_INCLUDE_DIRECTORIES "${_turbolane_include}")
  endif()
endforeach()
# It is one file under one name, for programs of any kind to carry along.
set_target_properties(turbolane::hint PROPERTIES IMPORTED_NO_SONAME TRUE)
