"""The options of distributed optimizers and tapes that no framework has a part in."""

import dataclasses
import warnings

import pytest

from horovod.common.collective.compression import NoneCompressor, StatefulCompressor
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average
from horovod.common.training.gradient_options import (
    GradientSettings,
    check_passes,
    check_predivide,
    cut_into_groups,
    resolve_groups,
    takes_part,
)


@pytest.mark.parametrize(
    ("groups", "together", "alone"),
    [
        (None, [], "abcde"),
        (0, [], "abcde"),
        (1, ["abcde"], ""),
        (2, ["abc", "de"], ""),
        (9, list("abcde"), ""),
        ([["b", "d"], ["x"], ("a",)], ["bd", "a"], "ce"),
        ([], [], "abcde"),
    ],
)
def test_groups(groups, together, alone):
    found = cut_into_groups("abcde", groups, hash, hash)
    assert ["".join(part) for part in found[0]] == together
    assert "".join(found[1]) == alone


def test_members_may_be_known_by_something_else():
    members = [("first", 1.5), ("second", 2.5)]
    found = cut_into_groups(members, [[2.5]], hash, lambda member: hash(member[1]))
    assert found == ([[("second", 2.5)]], [("first", 1.5)])


def test_wrong_groups():
    for groups in (-1, "ab", [1], 1.5, [["a"], "b"]):
        with pytest.raises(ValueError, match="non-negative integer or a list of lists"):
            cut_into_groups("ab", groups, hash, hash)
    with pytest.raises(ValueError, match="only appear once"):
        cut_into_groups("ab", [["a"], ["a"]], hash, hash)


def test_no_op_is_an_average():
    settings = GradientSettings(op=None, gradient_predivide_factor=4.0)
    assert (settings.op, settings.prescale, settings.postscale) == (Average, 0.25, 4.0)
    with pytest.raises(ValueError, match="op=7"):
        GradientSettings(op=7, gradient_predivide_factor=4.0)


def test_the_deprecated_number_of_groups():
    with pytest.warns(DeprecationWarning, match="num_groups"):
        assert resolve_groups(None, 3) == 3
    with pytest.warns(DeprecationWarning, match="num_groups"):
        assert resolve_groups(2, 3) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resolve_groups([["a"]], 0) == [["a"]]


def test_settings_are_checked_when_they_are_made():
    settings = GradientSettings(op=0, gradient_predivide_factor=4.0, compression=None)
    assert (settings.compression, settings.groups) == (NoneCompressor, None)
    assert (settings.prescale, settings.postscale) == (0.25, 4.0)
    for wrong in ({"op": 7}, {"op": 1, "gradient_predivide_factor": 2.0}, {"backward_passes_per_step": 0}):
        with pytest.raises(ValueError):
            GradientSettings(**wrong)
    with pytest.raises(TypeError, match="compressor class"):
        GradientSettings(compression="fp16")


def test_settings_cannot_be_changed_and_copies_keep_what_was_resolved():
    with pytest.warns(DeprecationWarning, match="num_groups") as told:
        settings = GradientSettings(num_groups=3)
    assert told[0].filename == __file__
    assert dataclasses.replace(settings, op=1).groups == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.op = 1


def test_settings_are_taken_from_the_arguments_of_a_function():
    def function(optimizer, op=1, gradient_predivide_factor=1.0, groups=None, num_groups=0, **others):
        return GradientSettings.among(locals())

    with pytest.warns(DeprecationWarning, match="num_groups") as caught:
        settings = function("an optimizer", num_groups=3, prescale=7.0)
    assert caught[0].filename == __file__
    assert (settings.op, settings.groups) == (1, 3)
    assert (settings.backward_passes_per_step, settings.prescale) == (1, 1.0)
    with pytest.raises(ValueError, match="predivide"):
        function("an optimizer", gradient_predivide_factor=2.0)


def test_settings_that_differ_are_different_facts():
    alike = GradientSettings(groups=2, device_dense="/cpu:0")
    assert alike.facts() == GradientSettings().facts()
    others = [{"op": 1}, {"compression": StatefulCompressor}, {"gradient_predivide_factor": 2.0}]
    others += [{"sparse_as_dense": True}, {"backward_passes_per_step": 2}, {"synchronize_in_backward": True}]
    for other in others:
        (label,) = other
        facts = GradientSettings(**other).facts()
        assert [name for name, fact in facts.items() if fact != alike.facts()[name]] == [label]


def test_checks():
    check_predivide(0, 2.0)
    check_predivide(1, 1.0)
    with pytest.raises(ValueError, match="op != Average"):
        check_predivide(1, 2.0)
    check_passes(1)
    for passes in (0, -1):
        with pytest.raises(ValueError, match="must be > 0"):
            check_passes(passes)


def test_who_takes_part(core, monkeypatch):
    assert takes_part(global_process_set) is False
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    assert takes_part(global_process_set) is True
    monkeypatch.delenv("HOROVOD_ELASTIC")
    core.size = 2
    assert takes_part(global_process_set) is True
    with pytest.raises(ValueError, match="not registered"):
        takes_part(ProcessSet([0]))
    with pytest.raises(TypeError, match="ProcessSet"):
        takes_part([0, 1])
    core.up = False
    with pytest.raises(ValueError, match=r"hvd\.init"):
        takes_part(global_process_set)
