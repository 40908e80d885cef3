hvd_test(api SOURCES api/api_test.cc USES api)
