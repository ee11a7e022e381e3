#!/usr/bin/env bash
# Installs what the test cluster needs from Debian's packages, and starts nothing of it. Needs root and apt.
set -euo pipefail

packages=(slurm-wlm munge slurmdbd slurm-wlm-basic-plugins mariadb-server)
policy=/usr/sbin/policy-rc.d # asked by invoke-rc.d(8) before a package starts its daemon; 101 forbids it

if dpkg-query --show --showformat '${db:Status-Status}\n' "${packages[@]}" 2>/dev/null | grep -cx installed |
    grep -qx "${#packages[@]}"; then
    echo "slurm: the packages are installed already"
    exit 0
fi
((EUID == 0)) || { echo "slurm: only root can install packages" >&2; exit 1; }
command -v apt-get >/dev/null || { echo "slurm: there is no apt-get on this machine" >&2; exit 1; }

if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
options=(-qq -o Acquire::Retries=2 -o Acquire::http::Timeout=20 -o DPkg::Lock::Timeout=60)
export DEBIAN_FRONTEND=noninteractive
apt-get "${options[@]}" update
apt-get "${options[@]}" install -y --no-install-recommends "${packages[@]}"
echo "slurm: the packages are installed, which took $SECONDS s"
