# The engine's own negotiation, driven in virtual time.
add_library(hvd_sim STATIC sim/job.cc sim/ledger.cc sim/links.cc sim/plan.cc sim/rank.cc sim/reports.cc sim/scale.cc
                           sim/world.cc)
target_link_libraries(hvd_sim PUBLIC hvd_runtime_progress hvd_check)
target_include_directories(hvd_sim PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})

add_executable(simulate sim/main.cc)
target_link_libraries(simulate PRIVATE hvd_sim)

hvd_test(simulation SOURCES sim/sim_test.cc USES sim)
