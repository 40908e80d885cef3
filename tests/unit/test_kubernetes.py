"""The manifests of examples/kubernetes: objects that Kubernetes takes, and commands that we take."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from horovod.runner import agent
from horovod.runner.command_line import parser

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "kubernetes"
OBJECTS = [
    (path.name, found)
    for path in sorted(FOLDER.glob("*.yaml"))
    for found in yaml.safe_load_all(path.read_text())
]
MODELS = {
    "Service": "IoK8sApiCoreV1Service",
    "Job": "IoK8sApiBatchV1Job",
    "JobSet": "JobsetV1alpha2JobSet",
    "ClusterTrainingRuntime": "TrainerV1alpha1ClusterTrainingRuntime",
    "TrainJob": "TrainerV1alpha1TrainJob",
}
POD = "IoK8sApiCoreV1PodTemplateSpec"
TOP = {"apiVersion", "kind", "metadata", "spec"}
MPI_FIELDS = {  # of kubeflow.org/v2beta1
    "spec": "launcherCreationPolicy mpiImplementation mpiReplicaSpecs runLauncherAsWorker runPolicy "
    "slotsPerWorker sshAuthMountPath",
    "runPolicy": "activeDeadlineSeconds backoffLimit cleanPodPolicy managedBy schedulingPolicy suspend "
    "ttlSecondsAfterFinished",
    "replica": "replicas restartPolicy template",
}


def inside(value: Any, key: str) -> list[Any]:
    """What goes by a key, at any depth."""
    if isinstance(value, dict):
        own = [value[key]] if key in value else []
        return own + [each for child in value.values() for each in inside(child, key)]
    return [each for child in value for each in inside(child, key)] if isinstance(value, list) else []


def unknown_fields(model: Any, given: Any, where: str) -> list[str]:
    """Fields of an object that its model does not have: these take them silently."""
    if isinstance(given, list):
        pairs = zip(model or [], given, strict=False)
        return [each for at, pair in enumerate(pairs) for each in unknown_fields(*pair, f"{where}[{at}]")]
    if not isinstance(given, dict) or not hasattr(type(model), "model_fields"):
        return []
    fields = {(field.alias or name): name for name, field in type(model).model_fields.items()}
    found = [f"{where}.{key}" for key in given if key not in fields]
    known = [key for key in given if key in fields]
    return found + [
        each
        for key in known
        for each in unknown_fields(getattr(model, fields[key]), given[key], f"{where}.{key}")
    ]


@pytest.mark.parametrize(
    ("name", "manifest"), OBJECTS, ids=lambda given: given if isinstance(given, str) else given["kind"]
)
def test_kubernetes_takes_it(name: str, manifest: dict[str, Any]) -> None:
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="kubeflow-trainer-api has the models")
    if manifest["kind"] in MODELS:
        model = getattr(models, MODELS[manifest["kind"]])
        assert unknown_fields(model.from_dict(manifest), manifest, manifest["kind"]) == []
    elif manifest["kind"] == "MPIJob":
        spec = manifest["spec"]
        replicas = spec["mpiReplicaSpecs"]
        assert set(replicas) == {"Launcher", "Worker"} and set(manifest) == TOP
        given = {"spec": [spec], "runPolicy": [spec.get("runPolicy", {})], "replica": replicas.values()}
        for kind, objects in given.items():
            assert all(set(each) <= set(MPI_FIELDS[kind].split()) for each in objects)
    for template in [each for each in inside(manifest, "template") if "containers" in each.get("spec", {})]:
        model = getattr(models, POD).from_dict(template)
        assert unknown_fields(model, template, "template") == []


def commands() -> list[list[str]]:
    return [
        command for _, found in OBJECTS for command in inside(found, "command") if "horovodrun" in command[0]
    ]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_horovodrun_takes_its_command(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = [word.replace("$(JOB_COMPLETION_INDEX)", "3") for word in command[1:]]
    if command[0] == "horovodrun-agent":
        assert agent._parser().parse_args(words).join == "train:29500"
        return
    arguments = parser.parse(words)
    assert arguments.command[0] == "python" and (ROOT / "examples" / arguments.command[1]).is_file()
    assert arguments.rendezvous.endswith(":29500")


def test_every_volume_that_is_mounted_is_there_and_secrets_are_closed() -> None:
    for _, found in OBJECTS:
        for spec in [each for each in inside(found, "spec") if "containers" in each]:
            mounted = {mount["name"] for each in spec["containers"] for mount in each.get("volumeMounts", [])}
            assert mounted == {volume["name"] for volume in spec.get("volumes", [])}
            secrets = [volume["secret"] for volume in spec["volumes"] if "secret" in volume]
            assert [each["defaultMode"] for each in secrets] == [0o400] * len(secrets)


def test_pods_with_ranks_have_room_for_shared_memory() -> None:
    pods = [each for name, found in OBJECTS for each in inside(found, "spec") if "containers" in each]
    ranks = [each for each in pods if each["containers"][0]["name"] != "launcher"]
    assert len(ranks) == 5
    for spec in ranks:
        (volume,) = [
            each["name"] for each in spec["containers"][0]["volumeMounts"] if each["mountPath"] == "/dev/shm"
        ]
        assert {"name": volume, "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}} in spec["volumes"]


def test_the_image_copies_what_is_there() -> None:
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY --chown") for word in line.split()[2:-1]]
    assert copied and all((ROOT / path).is_file() for path in copied)
    assert "USER 1000" in lines


def test_a_field_that_does_not_exist_is_noticed() -> None:
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="kubeflow-trainer-api has the models")
    given = {"spec": {"containers": [{"name": "a", "imagePullPolice": "Always"}]}}
    found = unknown_fields(getattr(models, POD).from_dict(given), given, "pod")
    assert found == ["pod.spec.containers[0].imagePullPolice"]
