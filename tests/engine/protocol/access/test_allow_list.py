"""Allow lists: every address of a network and none beside it, of both families, in IPv6's clothes; what is refused."""

from __future__ import annotations

import ipaddress
import random

import pytest

from engine.protocol.access.allow_list import NETWORKS_MAX, may_enter, parsed, plain

SEEDS = range(200)
ELSEWHERE = "203.0.113.200"


def random_network(rng: random.Random) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    if rng.random() < 0.5:
        prefix = rng.randint(1, 32)
        return ipaddress.IPv4Network((rng.getrandbits(prefix) << (32 - prefix), prefix))
    prefix = rng.randint(1, 128)
    return ipaddress.IPv6Network((rng.getrandbits(prefix) << (128 - prefix), prefix))


def clothed(address: ipaddress.IPv4Address | ipaddress.IPv6Address, rng: random.Random) -> str:
    """As accept() may show it."""
    if isinstance(address, ipaddress.IPv4Address):
        return f"::ffff:{address}" if rng.random() < 0.5 else str(address)
    return f"{address.exploded}%eth0" if rng.random() < 0.3 else str(address)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_network_holds_its_addresses_and_not_those_beside_it(seed: int) -> None:
    rng = random.Random(seed)
    network = random_network(rng)
    listed = parsed(f" {network} ,")
    first, last, kind = int(network.network_address), int(network.broadcast_address), type(network.network_address)
    for inside in (first, last, rng.randint(first, last)):
        assert listed.has(plain(clothed(kind(inside), rng)))
    for outside in (first - 1, last + 1):
        if 0 <= outside < 1 << network.max_prefixlen:
            assert not listed.has(plain(clothed(kind(outside), rng)))
    other = "2001:db8::1" if network.version == 4 else ELSEWHERE
    assert not listed.has(plain(other))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_list_is_the_sum_of_its_parts_and_reads_as_it_is_shown(seed: int) -> None:
    rng = random.Random(seed)
    networks = [random_network(rng) for _ in range(rng.randint(1, 6))]
    listed = parsed(rng.choice((";", ",", " ; ")).join(map(str, networks)))
    assert parsed(str(listed)) == listed
    for network in networks:
        address = network[rng.randrange(network.num_addresses)]
        assert listed.has(plain(str(address)))
    chance = plain(str(ipaddress.IPv4Address(rng.getrandbits(32))))
    assert listed.has(chance) == any(chance in plain_network(network) for network in networks)


def plain_network(
    network: ipaddress.IPv4Network | ipaddress.IPv6Network,
) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    mapped = network.network_address.ipv4_mapped if network.version == 6 else None
    return network if mapped is None else ipaddress.ip_network((int(mapped), max(0, network.prefixlen - 96)))


def test_one_address_is_a_network_of_one() -> None:
    listed = parsed("192.0.2.7; 2001:db8::7")
    assert listed.has(plain("192.0.2.7")) and listed.has(plain("2001:db8::7"))
    assert not listed.has(plain("192.0.2.8")) and not listed.has(plain("2001:db8::8"))
    assert str(listed) == "192.0.2.7/32;2001:db8::7/128"


def test_ipv4_in_ipv6_is_ipv4_and_each_family_has_its_own_everything() -> None:
    assert str(parsed("::ffff:10.0.0.0/104")) == "10.0.0.0/8"
    assert str(parsed("::ffff:10.1.2.3")) == "10.1.2.3/32"
    assert parsed("0.0.0.0/0").has(plain("::ffff:8.8.8.8")) and not parsed("0.0.0.0/0").has(plain("2001:db8::1"))
    assert parsed("::/0").has(plain("2001:db8::1")) and not parsed("::/0").has(plain("8.8.8.8"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        (" ; ,", "empty"),
        ("10.0.0.0/33", "nor a network"),
        ("host.example", "nor a network"),
        ("10.0.0.1/8", "write 10.0.0.0/8, or 10.0.0.1 for that address only"),
        ("10.0.0.0-10.0.0.9", "nor a network"),
        ("fe80::1%eth0", "scope"),
        ("10.0.0.0/255.0.255.0", "nor a network"),
        ("10", "nor a network"),
        ("10.0.0.1:9876", "nor a network"),
        (";".join(["10.0.0.1"] * (NETWORKS_MAX + 1)), f"{NETWORKS_MAX} at most"),
    ],
)
def test_what_is_no_list_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace(".", r"\.")):
        parsed(text)


def test_this_host_always_enters() -> None:
    listed = parsed("10.0.0.0/8")
    for peer, own in (
        ("127.0.0.1", "127.0.0.1"),
        ("127.9.9.9", "127.0.0.1"),
        ("::1", "::1"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
        (ELSEWHERE, ELSEWHERE),
        (f"::ffff:{ELSEWHERE}", ELSEWHERE),
        ("fe80::1%eth0", "fe80::1%2"),
    ):
        assert may_enter(listed, peer, own)
    assert not may_enter(listed, ELSEWHERE, "203.0.113.1")
    assert may_enter(listed, "10.255.0.1", "203.0.113.1")
    assert may_enter(None, ELSEWHERE, "203.0.113.1")
