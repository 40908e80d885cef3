hvd_test(backend_allreduce SOURCES backend_allreduce_test.cc ranks.cc USES backend)
hvd_test(backend_gather SOURCES backend_gather_test.cc ranks.cc USES backend)
hvd_test(backend_schedule SOURCES backend_schedule_test.cc ranks.cc USES backend)
