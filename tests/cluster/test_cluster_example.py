"""The manifest for Kubernetes starts a driver that is on a node of its cluster, with options that there are."""

import re
from pathlib import Path

from streamboost.cli import main

MANIFEST = Path(__file__).parents[2] / "examples" / "kuberay" / "cluster.yaml"


def test_the_driver_joins_the_cluster_and_has_only_options_that_there_are(capsys):
    text = MANIFEST.read_text()
    [name] = re.findall(r"kind: RayCluster\nmetadata:\n  name: (\S+)", text)
    command = r"- >-\n\s+(ray start .*?) &&\s+exec (streamboost run .*?)\n\s+volumeMounts"
    [(joining, running)] = re.findall(command, text, re.DOTALL)
    assert joining.split() == ["ray", "start", f"--address={name}-head-svc:6379", "--num-cpus=0"]
    _, _, _, *options = running.split()
    assert "--ray=auto" in options
    assert main(["run", "--help"]) == 0
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert {option.partition("=")[0] for option in options} <= known
