"""The clusters of the file that a service's setting names, and a client for each."""

from collections.abc import Mapping
from pathlib import Path

from shared.backends.clusters import SlurmCluster, WrongClusters, read
from shared.backends.slurm.client import SlurmClient, least_environment
from shared.runtime.errors import SettingsError


def clusters_of(path: Path | None) -> Mapping[str, SlurmCluster]:
    """By name; none where no file is named. What is wrong in it stops the service's start."""
    try:
        return read(path)
    except WrongClusters as error:
        raise SettingsError(f"TIDEGATE_CLUSTERS: {error}") from error


def client_of(cluster: SlurmCluster) -> SlurmClient:
    """Holds no connection: make one wherever the cluster is asked."""
    environment = least_environment()
    if cluster.slurm_conf is not None:
        environment["SLURM_CONF"] = str(cluster.slurm_conf)
    return SlurmClient(
        prefix=cluster.prefix,
        environment=environment,
        cluster=cluster.cluster,
        user=cluster.user,
        time_zone=cluster.time_zone,
        submissions_at_once=cluster.submissions_at_once,
    )
