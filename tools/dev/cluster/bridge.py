"""Hosts of a network that is not this machine's: network namespaces with a cable each to a bridge in another one.

Takes root, or what a user namespace gives in its place, and iproute2. A namespace is named by a process that is in it,
and is gone with the last of these: nothing has to be removed.
"""

from __future__ import annotations

import subprocess

BRIDGE = "bridge0"


class Bridge:
    """The first address of `network` (its first three numbers), in the network namespace of a process."""

    def __init__(self, holder: int, network: str) -> None:
        self._holder, self.network, self._cables = holder, network, 0
        _ip(holder, "link", "add", BRIDGE, "type", "bridge")
        _ip(holder, "address", "add", f"{network}.1/24", "dev", BRIDGE)
        _ip(holder, "link", "set", BRIDGE, "up")

    def plug(self, pid: int, address: str) -> None:
        """Give the network namespace of a process a cable, with this address at its own end."""
        self._cables += 1
        cable = f"v{self._cables}"
        _ip(self._holder, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _ip(self._holder, "link", "set", cable, "master", BRIDGE, "up")
        _ip(pid, "link", "set", "lo", "up")
        _ip(pid, "address", "add", f"{address}/24", "dev", "eth0")
        _ip(pid, "link", "set", "eth0", "up")
        _ip(pid, "route", "add", "default", "via", f"{self.network}.1")


def _ip(pid: int, *arguments: str) -> None:
    subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", *arguments], check=True)
