// What is refused of messages, by the name of the field.

#include "check.h"
#include "encoded.h"
#include "requests.h"

namespace hvd::negotiate {
namespace {

std::string DecodeError(const std::string& bytes) {
  AnnounceMessage message;
  return DecodeExactly(bytes, &message).message();
}

TEST(Message, LimitsNameTheField) {
  const std::string head{kMessageVersion, 0, 0, 1};  // version, urgent, no join, one announcement
  EXPECT_TRUE(DecodeError(std::string{3, 0, 0})
                  .find("version 3 instead of " + std::to_string(kMessageVersion)) !=
              std::string::npos);
  EXPECT_TRUE(
      DecodeError(std::string{kMessageVersion, 0, 0} + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
          .find("bad count") != std::string::npos);
  EXPECT_TRUE(DecodeError(head + "\xff" + "\x01").find("bad announcement tag") !=
              std::string::npos);
  EXPECT_TRUE(DecodeError(std::string{kMessageVersion, '\x80', 0, 0, 0}).find("bad number") !=
              std::string::npos);  // overlong

  EXPECT_TRUE(DecodeError(std::string{kMessageVersion, 0, '\x80', 2, 0}).find("bad join") !=
              std::string::npos);
  EXPECT_TRUE(DecodeError(head + std::string{2, 7, 0}).find("bad ordinal") != std::string::npos);
  EXPECT_TRUE(DecodeError(head + std::string{4, 7, 0}).find("bad sizes") != std::string::npos);

  AnnounceMessage message;
  message.announcements = {Full(Allreduce(std::string(kMaxNameBytes + 1, 'x')))};
  EXPECT_TRUE(DecodeError(Encoded(message)).find("bad name") != std::string::npos);
  message.announcements = {Full(Allreduce("x", Shape(kMaxDims + 1, 1)))};
  EXPECT_TRUE(DecodeError(Encoded(message)).find("bad shape") != std::string::npos);
  message.announcements = {Full(Allreduce("x", {-1}))};
  EXPECT_TRUE(DecodeError(Encoded(message)).find("bad shape") != std::string::npos);
  message.announcements = {Full(Allreduce("x", {1}, static_cast<DataType>(kDataTypes)))};
  EXPECT_TRUE(DecodeError(Encoded(message)).find("bad data type") != std::string::npos);
  for (const int kind : {static_cast<int>(OpKind::kJoin), kOpKinds}) {
    message.announcements = {Full(Allreduce("x", {1}))};
    message.announcements[0].request.kind = static_cast<OpKind>(kind);
    EXPECT_TRUE(DecodeError(Encoded(message)).find("bad operation") != std::string::npos);
  }
}

std::string DecodeError(Decision decision) {
  Response response;
  response.decisions = {std::move(decision)};
  return DecodeExactly(Encoded(response), &response).message();
}

// A member that has joined has no other description of an operation than the one of the decision.
TEST(Message, APartialDecisionOfAnUnknownOperationIsDescribed) {
  Decision decision;
  decision.name = "w";
  decision.partial = true;
  EXPECT_EQ(DecodeError(decision), "corrupt response: bad decision tag");
  decision.request = Allreduce("w");
  EXPECT_EQ(DecodeError(decision), "");
  decision.partial = false;
  EXPECT_EQ(DecodeError(decision), "corrupt response: bad decision tag");
  decision.partial = true;
  decision.error = "failed";
  EXPECT_EQ(DecodeError(decision), "corrupt response: bad decision tag");
  decision.request.reset();
  EXPECT_EQ(DecodeError(decision), "");
  // What fails gets no id and has no sizes.
  decision.sizes = {1};
  EXPECT_EQ(DecodeError(decision), "corrupt response: bad decision tag");
  decision.sizes.clear();
  decision.id = 3;
  EXPECT_EQ(DecodeError(decision), "corrupt response: bad decision tag");
}

TEST(Message, ARunIsOfKnownOperationsWithNothingElse) {
  EXPECT_EQ(DecodeError(Encoded(Message({Run(7, 9)}))), "");
  std::vector<Announcement> bad(5, Run(7, 9));
  bad[0].ordinal = 1;
  bad[1].sizes = {4};
  bad[2].id = kNoId;
  bad[2].request = Allreduce("w");
  bad[3].id = kNoId;
  bad[3].variants = {{kNoId, Allreduce("w"), {1}}};
  bad[4].id = kNoId - 8;  // the last one would be no id
  for (const Announcement& one : bad) {
    const std::string error = DecodeError(Encoded(Message({one})));
    EXPECT_EQ(error, std::string("corrupt announcement: bad ") +
                         (&one == &bad.back() ? "run" : "announcement tag"));
  }
  bad[4].id = kNoId - 9;
  EXPECT_EQ(DecodeError(Encoded(Message({bad[4]}))), "");
}

TEST(Message, ARunIsMoreThanOneOperation) {
  const std::string head{kMessageVersion, 0, 0, 1};  // one announcement: its tag, id and length
  EXPECT_EQ(DecodeError(head + std::string{32, 7, 1}), "");
  EXPECT_EQ(DecodeError(head + std::string{32, 7, 0}), "corrupt announcement: bad run");
  EXPECT_EQ(DecodeError(head + std::string{32, 7}), "corrupt announcement: bad run");
  EXPECT_EQ(DecodeError(head + std::string{32, 7} + "\xff\xff\xff\xff\x0f"),
            "corrupt announcement: bad run");
}

TEST(Message, ARunOfDecisionsIsOfKnownOperationsThatLackNobody) {
  Decision run;
  run.id = 7;
  run.count = 9;
  run.known = true;
  EXPECT_EQ(DecodeError(run), "");
  std::vector<Decision> bad(5, run);
  bad[0].partial = true;
  bad[1].sizes = {4};
  bad[2].ordinal = 1;
  bad[3].known = false;
  bad[3].name = "w";
  bad[4].id = kNoId;
  bad[4].known = false;
  bad[4].error = "failed";
  for (const Decision& one : bad) EXPECT_EQ(DecodeError(one), "corrupt response: bad decision tag");
  run.id = kNoId - 8;
  EXPECT_EQ(DecodeError(run), "corrupt response: bad run");
}

}  // namespace
}  // namespace hvd::negotiate
