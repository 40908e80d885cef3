#include "sim/rank.h"

#include <algorithm>
#include <utility>

#include "sim/backend.h"

namespace hvd::sim {

namespace {

constexpr Nanos kLongCompute = 300 * kMicro;
constexpr Nanos kVeryLongCompute = 20'000'000 * kMicro;
constexpr Nanos kShortCompute = 3 * kMicro;
constexpr Nanos kSleepsIn = 900'000 * kMicro;  // less than any look that nobody asked for
constexpr Nanos kRests = 40 * kHeartbeat;      // until nobody looks any more where nothing happens

std::vector<std::shared_ptr<SharedMemory>> MemoryOf(const Set& set, const std::vector<int>& hosts) {
  std::vector<std::vector<int>> local(hosts.size());
  for (const int rank : set.members)
    local[static_cast<size_t>(hosts[static_cast<size_t>(rank)])].push_back(rank);
  std::vector<std::shared_ptr<SharedMemory>> memory;
  for (std::vector<int>& ranks : local)
    memory.push_back(std::make_shared<SharedMemory>(std::move(ranks)));
  return memory;
}

}  // namespace

Job::Job(const Shape& s, Plan p, uint64_t seed)
    : shape(s),
      plan(std::move(p)),
      world(s.ranks, seed),
      links(&world, s.network, s.ranks),
      ledger(&plan, &world),
      topology(HostsOf(s), s.shared_memory) {
  for (const Set& set : plan.sets) memory.push_back(MemoryOf(set, HostsOf(s)));
}

Rank::Rank(Job* job, int rank)
    : job_(job),
      rank_(rank),
      work_(&job->world, rank),
      transport_(&job->links, rank),
      next_join_(job->plan.joins_at[static_cast<size_t>(rank)]) {
  for (size_t s = 0; s < job->plan.sets.size(); ++s) {
    const std::vector<int>& members = job->plan.sets[s].members;
    if (!std::binary_search(members.begin(), members.end(), rank)) continue;
    sets_.push_back(MakeSet(static_cast<uint32_t>(s), members));
  }
  job->world.Place(rank, this);
  job->ranks.push_back(this);
  job->world.Wake(rank, UpTo(kLongCompute));
}

// As the Wirer wires it.
std::unique_ptr<ProcessSet> Rank::MakeSet(uint32_t id, const std::vector<int>& ranks) {
  const Members members(ranks);
  const Position position = members.Find(GlobalRank(rank_));
  ProcessSetWires wires;
  wires.topology = job_->topology.Of(members);
  if (job_->topology.hosts_share_memory()) {
    const auto host = static_cast<size_t>(job_->topology.HostOf(Position(rank_)));
    std::shared_ptr<SharedMemory> memory = job_->memory[id][host];
    wires.window = std::make_unique<SimWindow>(&job_->world, std::move(memory), rank_);
    const int of_set = wires.topology.HostOf(position);
    const bool made =
        MakeWindowControl(wires.window.get(), wires.topology.OnHost(of_set), &wires.control).ok();
    if (!made) Violate("a window cannot be made");
  }
  wires.control =
      MakeTreeControl(std::move(wires.control), &transport_, id, members, wires.topology, position);
  if (!Watermarks::Make(wires.window.get(), &transport_, id, members, wires.topology, position,
                        &wires.watermarks)
           .ok())
    Violate("watermarks cannot be made");
  wires.backends.push_back(std::make_unique<SimBackend>(job_, rank_, id));
  ProcessSetOptions options;
  options.id = id;
  options.members = members;
  options.rank = GlobalRank(rank_);
  options.sequencer.cache_capacity = job_->shape.cache_capacity;
  options.sequencer.batch_bytes = job_->shape.batch_bytes;
  options.policy.fusion_threshold = job_->shape.fusion_threshold;
  if (!job_->shape.schedules) options.sequencer.learning.repeats = 0;
  EventSink* const events = job_->plan.computes < 0 ? &timeline_ : static_cast<EventSink*>(&work_);
  return std::make_unique<ProcessSet>(options, std::move(wires), waker_, &queue_, &counters_,
                                      events);
}

// Whoever is awake goes on until nothing moves, as the driver of the engine does.
void Rank::Act() {
  MeetEnd();
  if (job_->world.stopped(rank_)) return;
  const Nanos now = job_->world.now();
  const bool asked = AsksEngine();
  for (bool moved = true; moved;) {
    moved = Go();
    // A program that is not up to chance submits all of a step before the engine looks.
    while (job_->plan.computes >= 0 && Go()) moved = true;
    if (asked || HasWork()) moved = Round() || moved;
    if (moved) moved_ = now;
  }
  if (job_->plan.leaves && finished()) LeaveSets();
  Nanos next = computes_until_ > now ? computes_until_ : -1;
  if (Relays() && Beats() && now < moved_ + kRests) next = Earlier(next, next_beat_);
  for (const auto& set : sets_) {
    const int64_t deadline = HasWork() && LooksAt(*set) ? set->Deadline() : -1;
    if (deadline >= 0) next = Earlier(next, std::max(deadline * kMicro, now + kMicro));
  }
  job_->world.SetTimer(rank_, next);
}

// Otherwise the engine sleeps, whatever arrives; where nothing is up to chance it looks.
bool Rank::HasWork() const {
  return job_->plan.computes >= 0 || queue_.in_flight() > 0 ||
         std::any_of(sets_.begin(), sets_.end(), [](const auto& set) { return !set->idle(); });
}

bool Rank::Relays() const {
  if (job_->plan.computes >= 0) return false;
  return std::any_of(sets_.begin(), sets_.end(), [](const auto& set) { return set->relays(); });
}

// Whether a heartbeat wakes the engine for others: only where reports are checked.
bool Rank::Beats() const {
  const bool counts_on_wakers = !job_->plan.slow && job_->plan.ending == Ending::kDone;
  return !HasWork() || !counts_on_wakers;
}

bool Rank::AsksEngine() {
  if (job_->world.now() < next_beat_) return false;
  next_beat_ = job_->world.now() + kHeartbeat;
  looks_at_relays_ = Relays();
  return looks_at_relays_ && !HasWork();
}

// As SetTable does.
bool Rank::LooksAt(const ProcessSet& set) const {
  return job_->plan.computes >= 0 || set.busy() ||
         ((looks_at_relays_ || set.moved) && set.relays());
}

// As Cycle does with a set that is dismissed.
void Rank::LeaveSets() {
  for (auto set = sets_.begin(); set != sets_.end();) {
    const bool idle = (*set)->idle();
    if (idle) transport_.Forget((*set)->id());
    set = idle ? sets_.erase(set) : std::next(set);
  }
}

void Rank::MeetEnd() {
  const Plan& plan = job_->plan;
  if (sets_.empty()) return;
  if (plan.ending == Ending::kDone || rank_ != plan.victim || ended_ || step_ < plan.ends_at)
    return;
  // With something in flight it may be missed in the middle of that; the root is to report.
  const bool missed = flights_.empty() && sets_.front()->root() == nullptr;
  if ((plan.ending != Ending::kDeath && !missed) || !random().OneIn(3)) return;
  ended_ = true;
  if (plan.ending != Ending::kHang) job_->world.Stop(rank_);
}

// As Cycle does.
bool Rank::Round() {
  if (aborted_) return false;
  bool moved = !queue_.empty();
  work_.new_names = step_ == 0;
  Drain();
  for (const auto& set : sets_) {
    if (!LooksAt(*set)) continue;
    set->moved = false;
    const Status status = set->Tick(job_->world.micros(), &set->moved);
    moved |= set->moved;
    if (!status.ok()) Violate("the engine gives up: " + status.message());
  }
  looks_at_relays_ = false;
  bool bytes_moved = false;
  (void)transport_.Progress(&bytes_moved);
  if (job_->plan.slow && !moved) CheckReports();
  return moved || bytes_moved;
}

void Rank::Drain() {
  queue_.Take(&taken_, &urged_);
  const auto find = [this](const HandlePtr& handle) {
    return std::find_if(sets_.begin(), sets_.end(),
                        [&](const auto& set) { return set->id() == handle->entry.process_set; });
  };
  for (const HandlePtr& handle : taken_) (*find(handle))->Add(handle);
  for (const HandlePtr& handle : urged_) (*find(handle))->Urge(handle);
  taken_.clear();
  urged_.clear();
}

// The program, as far as it can.
bool Rank::Go() {
  bool moved = Reap();
  if (finished() || ended_ || job_->world.now() < computes_until_) return moved;
  const Plan& plan = job_->plan;
  if (!begun_) {
    BeginStep();
    return true;
  }
  if (awaited_ != nullptr) {
    if (!awaited_->done.load()) return moved;
    awaited_ = nullptr;
  }
  if (!to_submit_.empty()) {
    const Submission submission = to_submit_.back();
    if (const Flight* same = SameName(submission)) {
      if (!std::exchange(waits_, true)) queue_.Urge(same->handle);
      return moved;
    }
    waits_ = false;
    to_submit_.pop_back();
    Submit(submission);
    if (plan.computes < 0 && random().OneIn(8)) {
      computes_until_ = job_->world.now() + DrawCompute(kShortCompute);
    }
    return true;
  }
  const bool joins_next = step_ + 1 == next_join_;
  if (!flights_.empty() && !(joins_next ? plan.joins_in_flight : goes_on_)) {
    if (!std::exchange(waits_, true)) Ask();
    return moved;
  }
  EndStep();
  return true;
}

void Rank::EndStep() {
  const uint64_t messages = counters_.control_messages;
  const uint64_t frames = job_->links.SentBy(rank_).frames;
  if (step_ < job_->plan.steps.size())
    job_->ledger.EndedStep(step_, messages - messages_, frames - frames_);
  messages_ = messages;
  frames_ = frames;
  ++step_;
  begun_ = waits_ = false;
}

void Rank::BeginStep() {
  const Plan& plan = job_->plan;
  begun_ = true;
  goes_on_ = false;
  if (step_ == next_join_) return Join();
  if (step_ >= plan.steps.size()) return;
  goes_on_ = plan.overlaps && random().OneIn(2);
  if (plan.computes >= 0) {
    computes_until_ = job_->world.now() + plan.computes;
  } else if (!random().OneIn(3)) {
    computes_until_ = job_->world.now() + DrawCompute(kLongCompute);
  }
  for (const Submission& submission : plan.steps[step_]) {
    if (plan.Has(plan.ops[submission.op], rank_, step_)) to_submit_.push_back(submission);
  }
  std::reverse(to_submit_.begin(), to_submit_.end());
  if (plan.computes >= 0 || plan.ordered || !random().OneIn(3)) return;
  // Named operations in any order; unnamed ones match by their order.
  const auto named = [&](const Submission& s) { return !plan.ops[s.op].name.empty(); };
  std::stable_partition(to_submit_.begin(), to_submit_.end(), named);
  const auto unnamed = std::find_if_not(to_submit_.begin(), to_submit_.end(), named);
  for (auto one = to_submit_.begin(); one != unnamed; ++one) {
    const auto others = static_cast<uint64_t>(unnamed - one);
    std::iter_swap(one, one + static_cast<int64_t>(random().Below(others)));
  }
}

Nanos Rank::DrawCompute(Nanos usual) {
  const bool long_one = job_->plan.slow && random().OneIn(8);
  return UpTo(long_one ? kVeryLongCompute : usual);
}

Entry Rank::Describe(const Submission& submission) const {
  const Op& op = job_->plan.ops[submission.op];
  const auto members = static_cast<int64_t>(job_->plan.sets[op.set].members.size());
  Entry entry;
  entry.process_set = static_cast<uint32_t>(op.set);
  entry.request.kind = op.kind;
  entry.request.reduce_op = op.reduce_op;
  entry.request.name = op.name;
  entry.request.root = GlobalRank(op.root);
  const bool tells = submission.tells == rank_;
  entry.request.notice = tells ? NoticeOf(rank_) : 0;
  if (tells || op.kind == OpKind::kBarrier) return entry;
  const bool by_member = op.kind == OpKind::kAlltoall;
  const bool longer = submission.longer == rank_ && (by_member || op.kind == OpKind::kAllgather);
  const int64_t own = op.rows + (longer ? 1 : 0);
  const int64_t rows = by_member ? members * (own + 1) : own;
  entry.request.tensors.push_back({DataType::kFloat32, {rows, submission.odd == rank_ ? 2 : 1}});
  for (int64_t m = 0; by_member && m < members; ++m)
    entry.request.splits.push_back(own + (rank_ + m) % 2);
  // On the host the rows might come along with the counts, where the ledger does not look.
  if (by_member) entry.request.device = 0;
  const int64_t bytes = negotiate::BytesOf(entry.request);
  for (size_t t = 0; t < op.tensors; ++t) {
    TensorBuffer buffer = TensorBuffer::InPlace(Ledger::MemoryOf(submission.op, t, rank_), bytes);
    if (op.kind != OpKind::kAllreduce && op.kind != OpKind::kBroadcast) {
      buffer.output = nullptr;
      buffer.output_bytes = 0;
    }
    entry.buffers.push_back(buffer);
  }
  entry.request.tensors.resize(op.tensors, entry.request.tensors.front());
  return entry;
}

void Rank::Submit(const Submission& submission) {
  Entry entry = Describe(submission);
  entry.urgent = job_->plan.computes < 0 && random().OneIn(4);
  if (job_->plan.priorities) entry.priority = static_cast<int32_t>(random().Below(3));
  auto handle = std::make_shared<Handle>(std::move(entry));
  const Status status = queue_.Push(handle);
  if (!status.ok()) Violate("a submission is refused: " + status.message());
  job_->ledger.Submitted(rank_, submission, step_);
  for (size_t t = 0; t < job_->plan.ops[submission.op].tensors; ++t)
    Ledger::MarkMemory(submission.op, t, rank_, step_);
  if (submission.waits) {
    awaited_ = handle;
    queue_.Urge(handle);
  }
  flights_.push_back({std::move(handle), submission, step_, job_->world.now()});
}

void Rank::Join() {
  for (const auto& set : sets_) {
    Entry entry;
    entry.process_set = set->id();
    entry.request.kind = OpKind::kJoin;
    auto handle = std::make_shared<Handle>(std::move(entry));
    if (!queue_.Push(handle).ok()) Violate("a join is refused");
    flights_.push_back({std::move(handle), {SIZE_MAX}, step_, job_->world.now()});
  }
  // It submits nothing more, or goes on behind this when all have joined.
  const size_t end = job_->plan.steps.size();
  const bool resumes = step_ < end && job_->plan.resumes_at < end;
  step_ = resumes ? job_->plan.resumes_at - 1 : end;
  next_join_ = resumes ? end : SIZE_MAX;
}

// What is in flight under the name of what it is about to submit.
const Rank::Flight* Rank::SameName(const Submission& submission) const {
  const std::string& name = job_->plan.ops[submission.op].name;
  const auto found = std::find_if(flights_.begin(), flights_.end(), [&](const Flight& flight) {
    return flight.submission.op == submission.op;
  });
  return name.empty() || found == flights_.end() ? nullptr : &*found;
}

// The program is blocked on what it has submitted.
void Rank::Ask() {
  for (const Flight& flight : flights_) queue_.Urge(flight.handle);
}

bool Rank::Reap() {
  const size_t before = flights_.size();
  const auto done = [this](const Flight& flight) {
    if (!flight.handle->done.load()) return false;
    NoteEnd(*flight.handle);
    if (aborted_) return true;
    if (flight.submission.op == SIZE_MAX) return true;
    if (Lasts(flight) > kSleepsIn) Violate("an operation lasts until a sleeper wakes by itself");
    job_->ledger.Ended(rank_, flight.submission, flight.step, flight.handle->status);
    return true;
  };
  flights_.erase(std::remove_if(flights_.begin(), flights_.end(), done), flights_.end());
  return flights_.size() != before;
}

void Rank::Abort() {
  aborted_ = true;
  transport_.Close(0);
  for (const auto& set : sets_) set->executor().Abandon();
  while (const HandlePtr handle = queue_.ForgetOldest()) {
    handle->status = Status::Aborted("a rank is lost");
    handle->done.store(true);
  }
  (void)Reap();
  if (!flights_.empty()) Violate("an operation outlives its generation");
}

// Nobody computes for long, so that it ends soon: in a job where nobody hangs.
Nanos Rank::Lasts(const Flight& flight) const {
  const Plan& plan = job_->plan;
  const bool counts = plan.computes < 0 && !plan.slow && plan.ending == Ending::kDone;
  return counts ? job_->world.now() - flight.since : 0;
}

std::string Rank::Waiting() const {
  std::string text =
      "rank " + std::to_string(rank_) + " in step " + std::to_string(step_) + " waits for";
  for (const Flight& flight : flights_) text += " '" + flight.handle->name() + "'";
  return text + " (" + std::to_string(counters_.gates) + " gates, " +
         std::to_string(counters_.schedules_left) + " schedules left)";
}

}  // namespace hvd::sim
