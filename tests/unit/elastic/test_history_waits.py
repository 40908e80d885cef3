"""What a training records while its folder cannot be written."""

from horovod.elastic.checkpoint.history import MOST_LINES, Recorder


def test_a_folder_that_cannot_be_written_does_not_fill_the_memory():
    recorder = Recorder()
    for commit in range(1, MOST_LINES + 30_000):
        recorder.add({"step": commit})
        recorder.commit(commit)
        assert len(recorder._committed) <= MOST_LINES
    lines = recorder.lines_between(0, commit)
    assert len(lines) > MOST_LINES // 2
    assert [line["step"] for _, line in lines] == list(range(commit - len(lines) + 1, commit + 1))


def test_a_commit_with_many_lines_is_bounded_too():
    recorder = Recorder()
    for step in range(MOST_LINES + 10):
        recorder.add({"step": step})
    recorder.commit(1)
    lines = recorder.lines_between(0, 1)
    assert len(lines) <= MOST_LINES and lines[-1][1]["step"] == MOST_LINES + 9
