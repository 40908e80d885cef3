"""What is believed of the output of a discovery script."""

import pytest

from horovod.elastic.driver.discovery import MOST_SLOTS, DiscoveryError, parse


def test_empty_lines_and_comments_are_skipped_as_in_a_hostfile():
    assert parse("# all\n\na:1\r\n  b:2  # the large one\n #c:1\n", None) == {"a": 1, "b": 2}
    with pytest.raises(DiscoveryError, match="no host with slots"):
        parse("# none today\n", None)


def test_a_slip_of_the_pen_starts_no_crowd():
    assert parse(f"a:{MOST_SLOTS}\n", None) == {"a": MOST_SLOTS}
    with pytest.raises(DiscoveryError, match="more than"):
        parse("a:44444\n", None)
