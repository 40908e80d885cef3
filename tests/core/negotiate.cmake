hvd_test(negotiate_message SOURCES negotiate/message_limits_test.cc negotiate/message_test.cc USES negotiate)
hvd_test(negotiate_response_cache SOURCES negotiate/response_cache_test.cc USES negotiate)
hvd_test(negotiate_sequencer SOURCES negotiate/sequencer_test.cc USES negotiate)
hvd_test(negotiate_sequencer_run SOURCES negotiate/sequencer_run_test.cc USES negotiate)
hvd_test(negotiate_join SOURCES negotiate/join_test.cc USES negotiate)
hvd_test(negotiate_mismatch SOURCES negotiate/mismatch_test.cc USES negotiate)
hvd_test(negotiate_notice SOURCES negotiate/notice_test.cc USES negotiate)
hvd_test(negotiate_lateness SOURCES negotiate/lateness_test.cc USES negotiate)
hvd_test(negotiate_stall SOURCES negotiate/stall_test.cc USES negotiate)
hvd_test(negotiate_merger
  SOURCES negotiate/merger_following_test.cc negotiate/merger_run_test.cc negotiate/merger_test.cc
          negotiate/merger_urgency_test.cc
  USES negotiate)
hvd_test(negotiate_following SOURCES negotiate/following_test.cc negotiate/sim_tree.cc USES negotiate)
hvd_test(negotiate_schedule SOURCES negotiate/schedule_test.cc USES negotiate)
hvd_test(negotiate_simulator
  SOURCES negotiate/ledger.cc negotiate/random_request.cc negotiate/sim_client.cc negotiate/sim_member.cc
          negotiate/sim_tree.cc negotiate/simulator.cc negotiate/simulator_test.cc
  USES negotiate)
hvd_test(negotiate_set_simulator
  SOURCES negotiate/random_request.cc negotiate/set_ledger.cc negotiate/set_program.cc negotiate/set_rank.cc
          negotiate/set_simulator.cc negotiate/set_simulator_test.cc negotiate/sim_client.cc negotiate/sim_tree.cc
  USES negotiate)

# Not a test: prints nanoseconds per tensor.
add_executable(speed_negotiate negotiate/speed.cc)
target_link_libraries(speed_negotiate PRIVATE hvd_negotiate)
# Likewise: what a node of a large tree spends and keeps.
add_executable(speed_negotiate_tree negotiate/sim_tree.cc negotiate/tree_speed.cc)
target_link_libraries(speed_negotiate_tree PRIVATE hvd_negotiate)
