hvd_test(fusion_plan SOURCES fusion_plan_test.cc USES fusion)
