"""The params of the estimators: accessors, defaults, types, deprecated names. No application is needed."""

import warnings

import pytest

pytest.importorskip("torch")

from horovod.spark.common.params import ESTIMATOR, MODEL
from horovod.spark.torch import TorchEstimator, TorchModel

SAMPLES = {"int": 3, "float": 0.5, "str": "some"}


def test_each_param_has_accessors_a_default_and_a_text() -> None:
    for cls, rows in ((TorchEstimator, ESTIMATOR), (TorchModel, MODEL)):
        stage = cls()
        for row in rows:
            get, set_ = (getattr(stage, f"{verb}{row.accessors()}") for verb in ("get", "set"))
            assert get() == row.default, row.name
            value = row.default if isinstance(row.default, bool) else _fitting(row)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                assert set_(value) is stage, row.name
            assert get() == value, row.name
            assert set_(None) is stage and get() == row.default, row.name
            assert row.doc in stage.explainParam(row.name)


def _fitting(row: object) -> object:
    for value in (7, "some", ["a"], [0.5]):
        try:
            return row.convert(value) if row.convert else value
        except TypeError:
            continue
    raise AssertionError(row)


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (TorchEstimator, "FeatureCols TrainReaderNumWorker ValReaderNumWorker ShufflingBufferSize"),
        (
            TorchEstimator,
            "InMemoryCacheAll UseGpu MpStartMethod InputShapes LossConstructors TrainMinibatchFn",
        ),
        (TorchEstimator, "TransformationEditFields GradientCompression CompressSparseCols RunId LabelShapes"),
        (TorchModel, "History Model FeatureColumns LabelColumns OutputCols RunId Optimizer InputShapes Loss"),
    ],
)
def test_names_that_programs_use(cls: type, names: str) -> None:
    for name in names.split():
        assert callable(getattr(cls, f"get{name}")) and callable(getattr(cls, f"set{name}"))


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match="no param 'epoch': do you mean 'epochs'"):
        TorchEstimator(epoch=3)
    with pytest.raises(TypeError, match="batch_size"):
        TorchEstimator(batch_size="many")
    with pytest.raises(ValueError, match="model, store, feature_cols, label_cols, optimizer must be set"):
        TorchEstimator(num_proc=1).fit_on_parquet()
    with pytest.raises(ValueError, match="exclude each other"):
        TorchEstimator(num_proc=1, backend=object()).fit_on_parquet()


def test_deprecated_names() -> None:
    with pytest.warns(DeprecationWarning, match="use shuffle"):
        TorchEstimator(shuffle_buffer_size=0)
    assert TorchModel().setLabelColoumns(["y"]).getLabelColumns() == ["y"]


def test_a_copy_has_the_values_and_its_own_lists() -> None:
    one = TorchEstimator(epochs=3)
    other = one.copy({one.epochs: 5})
    assert (one.getEpochs(), other.getEpochs(), one.uid) == (3, 5, other.uid)
    one.getCallbacks().append("a callback")
    assert TorchEstimator().getCallbacks() == []
