"""A job for the elastic driver, in a time of its own."""

import collections

from horovod.elastic.driver.decisions import End, Form, GiveUp, Kill, Notify, Start
from horovod.elastic.driver.driver import Driver
from horovod.elastic.driver.reliability import Reliability


class Job:
    """Carries decisions out, as a launcher does, in a time of its own."""

    def __init__(self, limits, slots):
        self.now = 100.0
        self.driver = Driver(limits, self.now, Reliability(seed=1))
        self.living = {}  # worker: host
        self.forms = []
        self.notices = []
        self.kills = []
        self.given_up = []
        self.end = None
        self.driver.on_hosts(slots, self.now)
        self.act()

    def act(self):
        for decision in self.driver.decide(self.now):
            if isinstance(decision, Start):
                assert decision.worker not in self.living
                self.living[decision.worker] = decision.host
            elif isinstance(decision, Form):
                self.check(decision)
                self.forms.append(decision)
            elif isinstance(decision, Notify):
                self.notices.append(decision)
            elif isinstance(decision, Kill):
                assert decision.worker in self.living
                self.kills.append(decision.worker)
            elif isinstance(decision, GiveUp):
                assert decision.worker in self.kills
                self.given_up.append(decision.worker)
                del self.living[decision.worker]
            elif isinstance(decision, End):
                assert self.end is None
                self.end = decision

    def check(self, form):
        assert form.generation == len(self.forms) + 1
        assert {each.worker for each in form.members} <= self.living.keys()
        assert [each.rank for each in form.members] == list(range(len(form.members)))
        by_host = collections.defaultdict(list)
        for each in form.members:
            assert each.size == len(form.members) and each.host == self.living[each.worker]
            by_host[each.host].append(each)
        for host, members in by_host.items():
            assert sorted(each.local_rank for each in members) == list(range(len(members)))
            assert {each.local_size for each in members} == {len(members)}, host
        for position in {each.local_rank for each in form.members}:
            across = [each for each in form.members if each.local_rank == position]
            assert sorted(each.cross_rank for each in across) == list(range(len(across)))
            assert {each.cross_size for each in across} == {len(across)}

    def ready(self, *workers, commits=0):
        for worker in workers or list(self.living):
            self.driver.on_waiting(worker, self.now, commits)
        self.act()

    def dies(self, worker, status=137, is_lost=False, was_asked=False):
        del self.living[worker]
        pause = self.driver.on_exit(worker, status, self.now, is_lost, was_asked)
        self.act()
        return pause

    def hosts(self, slots):
        held = self.driver.on_hosts(slots, self.now)
        self.act()
        return held

    def later(self, seconds):
        self.now += seconds
        self.act()

    def ranks(self):
        return {each.worker: each.rank for each in self.forms[-1].members}
