hvd_test(trace_file SOURCES trace/trace_file_test.cc USES trace)
hvd_test(trace_timeline SOURCES trace/timeline_test.cc USES trace)
