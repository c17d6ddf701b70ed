"""The page about Spark's clusters and its manifests: what Kubernetes, our files and our commands make of them."""

from __future__ import annotations

import copy
import re
import subprocess
import uuid
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from engine.settings.config import load
from spark_bridge.options.read import parse_options
from tests.harness.page_blocks import blocks_of
from tools.run.flight_command import flight

FOLDER = Path(__file__).resolve().parents[4] / "docs" / "kubernetes"
VERSIONS = ("1.28", "1.37")
INSIDE = "/slipstream"
SOCKET_NAME_MAX = 107  # of Linux; a container's folder on YARN is longer


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))


def of_kind(kind: str) -> dict[str, Any]:
    (document,) = (document for document in documents("replicas") if document["kind"] == kind)
    return document


def pod_of(name: str) -> dict[str, Any]:
    return of_kind("DaemonSet")["spec"]["template"]["spec"] if name == "replicas" else documents(name)[0]["spec"]


def container(pod: dict[str, Any], name: str) -> dict[str, Any]:
    (one,) = (each for each in pod["containers"] if each["name"] == name)
    return one


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_schemas_take_each_manifest(version: str) -> None:
    checked = 0
    for path in sorted(FOLDER.glob("*.yaml")):
        for document in documents(path.stem):
            kubernetes_validate.validate(document, version, strict=True)
            checked += 1
    assert checked == 5


def test_the_check_refuses_what_kubernetes_would_not_take() -> None:
    for change in (
        {"nodeSelectr": {}},
        {"volumes": [{"name": "a", "hostPath": {"type": "Directory"}}]},
        {"shareProcessNamespace": "yes"},
    ):
        wrong = copy.deepcopy(of_kind("DaemonSet"))
        wrong["spec"]["template"]["spec"].update(change)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("name", ["replicas", "spark-driver", "spark-executor"])
def test_what_is_mounted_is_a_volume_of_the_pod(name: str) -> None:
    pod = pod_of(name)
    volumes = {volume["name"] for volume in pod["volumes"]}
    containers = [*pod["containers"], *pod.get("initContainers", ())]
    mounted = [mount["name"] for one in containers for mount in one["volumeMounts"]]
    assert set(mounted) == volumes


def test_an_executor_has_the_replica_where_the_page_says() -> None:
    theirs = {volume["name"]: volume["hostPath"] for volume in pod_of("spark-executor")["volumes"]}
    ours = {volume["name"]: volume.get("hostPath") for volume in pod_of("replicas")["volumes"]}
    assert theirs == {name: ours[name] for name in theirs}
    places = [
        {mount["name"]: mount["mountPath"] for mount in container(pod, name)["volumeMounts"] if mount["name"] in theirs}
        for pod, name in ((pod_of("replicas"), "broker"), (pod_of("spark-executor"), "spark"))
    ]
    assert places[0] == places[1]
    assert options_of_the_page()["replicaPath"] == places[0]["store"]
    labels = of_kind("DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert of_kind("Service")["spec"]["selector"].items() <= labels.items()


def test_the_brokers_file_is_taken_with_what_its_start_adds(tmp_path: Path) -> None:
    (added,) = (word for word in container(pod_of("replicas"), "broker")["command"] if "brokerId" in word)
    text, target = of_kind("ConfigMap")["data"]["broker.properties"], tmp_path / "broker.properties"
    (tmp_path / "given").write_text(text.replace(INSIDE, str(tmp_path)))
    script = added.replace("/etc/slipstream/broker.properties", str(tmp_path / "given"))
    script = script.replace("/tmp/broker.properties", str(target)).replace("exec slipstream", "exec echo")
    ids = set()
    for node in ("worker-a", "worker-b"):
        environment = {"PATH": "/usr/bin:/bin", "POD_IP": "10.1.2.3", "NODE_NAME": node}
        subprocess.run(["sh", "-ec", script], check=True, env=environment, capture_output=True)
        config, warnings = load(str(target))
        assert not warnings
        assert (config.broker_ip1, config.store_path_root_dir) == ("10.1.2.3", tmp_path / "store")
        ids.add(config.broker_id)
    assert len(ids) == 2 and min(ids) > 0


def test_the_flight_servers_words_are_taken(tmp_path: Path) -> None:
    words = container(pod_of("replicas"), "flight")["command"]
    assert words[:2] == ["slipstream", "flight"]
    (tmp_path / "store").mkdir()
    arguments = [word.replace("/etc/slipstream", str(tmp_path)).replace(INSIDE, str(tmp_path)) for word in words[2:]]
    given = flight.make_context("flight", arguments).params
    port = next(each["containerPort"] for each in container(pod_of("replicas"), "flight")["ports"])
    assert (given["port"], given["store"]) == (port, tmp_path / "store")
    assert str(port) in options_of_the_page()["path"] and given["token_file"] == tmp_path / "token" / "token"
    data = of_kind("ConfigMap")["data"]
    assert Path(given["tls_config"]).name in data and "tls.server.certPath" in data["tls.properties"]


def test_the_pages_properties_name_what_is_there() -> None:
    texts = [block.text for block in blocks_of("spark-clusters.md") if block.kind == "properties"]
    lines = [line for text in texts for line in text.splitlines() if line and not line.startswith("#")]
    values = dict(re.split(r"\s+", line, maxsplit=1) for line in lines)
    assert len(values) == len(lines) and all(name.startswith("spark.") for name in values)
    assert len(f"{values['spark.python.unix.domain.socket.dir']}/.{uuid.uuid4()}.sock") <= SOCKET_NAME_MAX
    for name in ("driver", "executor"):
        file = FOLDER.parent.parent / values[f"spark.kubernetes.{name}.podTemplateFile"]
        (pod,) = yaml.safe_load_all(file.read_text())
        names = {one["name"] for one in pod["spec"]["containers"]}
        assert values[f"spark.kubernetes.{name}.podTemplateContainerName"] in names


def options_of_the_page() -> dict[str, str]:
    """What its Python block makes."""
    (text,) = (block.text for block in blocks_of("spark-clusters.md") if block.kind == "python")
    names: dict[str, Any] = {}
    exec(text, names)
    return names["options"]


def test_the_pages_options_are_taken(tmp_path: Path) -> None:
    options = options_of_the_page()
    driver = container(pod_of("spark-driver"), "spark")
    for name in ("flightTokenFile", "flightRoots"):
        assert any(options[name].startswith(mount["mountPath"]) for mount in driver["volumeMounts"])
        (tmp_path / name).write_text("x")
        options[name] = str(tmp_path / name)
    flights = parse_options(options).flights
    assert flights is not None and flights.stores == ((options["path"],),) and flights.token == "x"
