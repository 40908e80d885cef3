hvd_test(trace_timeline SOURCES timeline_test.cc USES trace)
