"""What is believed of the output of a discovery script."""

import pytest

from horovod.elastic.driver.discovery import MOST_SLOTS, DiscoveryError, parse


def test_empty_lines_and_comments_are_skipped_as_in_a_hostfile():
    assert parse("# all\n\na:1\r\n  b:2  # the large one\n #c:1\n", None) == {"a": 1, "b": 2}


def test_an_output_without_hosts_is_a_cluster_without_hosts():
    assert parse("", 2) == parse("# none today\n", 2) == parse("a:0\n", 2) == {}


def test_of_a_host_that_is_listed_twice_the_last_line_counts():
    assert parse("a:1\nb:1\na:3\n", None) == {"a": 3, "b": 1}
    assert parse("a\na\na:0\nb\n", 2) == {"b": 2}


def test_a_slip_of_the_pen_starts_no_crowd():
    assert parse(f"a:{MOST_SLOTS}\n", None) == {"a": MOST_SLOTS}
    with pytest.raises(DiscoveryError, match="more than"):
        parse("a:44444\n", None)
