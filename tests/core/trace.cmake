hvd_test(trace_file SOURCES trace_file_test.cc USES trace)
hvd_test(trace_timeline SOURCES timeline_test.cc USES trace)
