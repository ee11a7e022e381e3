"""A client for a cluster as the deployment's file of clusters describes it."""

from shared.backends.clusters import SlurmCluster
from shared.backends.slurm.client import SlurmClient, least_environment


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
