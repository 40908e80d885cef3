add_library(hvd_cluster STATIC cluster.cc)
target_link_libraries(hvd_cluster PUBLIC hvd_runtime hvd_check)

hvd_test(runtime_streams SOURCES runtime_streams_test.cc USES runtime)
hvd_test(runtime_engine SOURCES runtime_engine_test.cc USES cluster)
hvd_test(runtime_sets SOURCES runtime_sets_test.cc USES cluster)
hvd_test(runtime_join SOURCES runtime_join_test.cc USES cluster)
hvd_test(runtime_faults SOURCES runtime_faults_test.cc USES cluster)
hvd_test(runtime_stress SOURCES runtime_stress_test.cc USES cluster)
