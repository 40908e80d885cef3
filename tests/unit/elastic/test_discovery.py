"""What is believed of the outputs of a discovery script."""

from horovod.elastic.driver.discovery import Sightings


def test_what_comes_is_believed_at_once_and_what_goes_the_second_time():
    seen = Sightings()
    for found, hosts in (
        ({"a": 1}, {"a": 1}),
        ({"a": 3, "b": 2}, {"a": 3, "b": 2}),
        ({"a": 1}, {"a": 3, "b": 2}),
        ({"a": 3, "b": 2}, {"a": 3, "b": 2}),
        ({"a": 1}, {"a": 3, "b": 2}),
        ({"a": 2}, {"a": 2}),
        ({"b": 1}, {"a": 2, "b": 1}),
        ({"b": 1}, {"b": 1}),
    ):
        before = dict(seen.hosts)
        assert seen.see(found) == (hosts != before)
        assert seen.hosts == hosts


def test_slots_that_flap_change_nothing():
    seen = Sightings()
    seen.see({"a": 3})
    assert not any(seen.see({"a": slots}) for slots in (1, 3) * 9)
