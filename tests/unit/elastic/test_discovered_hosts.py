"""What is believed of the output of a discovery script."""

import pytest

from horovod.elastic.driver.discovery import MOST_SLOTS, DiscoveryError, parse


def test_a_slip_of_the_pen_starts_no_crowd():
    assert parse(f"a:{MOST_SLOTS}\n", None) == {"a": MOST_SLOTS}
    with pytest.raises(DiscoveryError, match="more than"):
        parse("a:44444\n", None)
