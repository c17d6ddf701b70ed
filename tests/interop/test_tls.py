"""TLS between RocketMQ's processes and ours: mqadmin at our enforcing ports, our broker at an enforcing name server."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from engine.shared_memory.cursors import BrokerCounters, TlsOutcome
from store.reading import extent
from tests.harness.certificates import Authority, Issued, tls_file
from tests.harness.conditions import await_that
from tests.interop import needs, rocketmq
from tests.interop.rocketmq import MqAdmin, NameServer, RealClient, RocketMQBroker
from tests.interop.sides import OurNameServer
from tests.interop.test_name_server import consumed
from tools.cli import run_command
from tools.common.local_broker import LocalBroker

SIZES = {"mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536, "brokerName": "a"}


def both_sides(path: Path, own: Issued, authority: Authority) -> Path:
    """The one file that RocketMQ's processes and ours read."""
    shown = {
        f"{side}_{what}": file
        for side in ("server", "client")
        for what, file in (("certPath", own.certificate), ("keyPath", own.key))
    }
    trusted = {"client_trustCertPath": authority.certificate, "client_authServer": "true"}
    return tls_file(path, test_mode_enable="false", **shown, **trusted)


def over_tls(path: Path) -> list[str]:
    return ["-Dtls.enable=true", f"-Dtls.config.file={path}"]


class TlsBroker(RocketMQBroker):
    """One that is not asked in plaintext whether it has registered."""

    def _announce(self, name_server: str) -> None:
        """By itself a broker of 5.x tells the name server of its topics ten seconds later."""


@pytest.mark.interop
@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_mqadmin_over_tls_1_3_at_our_enforcing_cluster(version: str, tmp_path: Path) -> None:
    needs.need([version])
    authority, stranger = Authority(tmp_path / "ca"), Authority(tmp_path / "other", "somebody else")
    issued = authority.issue("node")
    path = both_sides(tmp_path / "tls.properties", issued, authority)
    enforcing = {"tls.server.mode": "enforcing", "tls.config.file": path}
    settings = tmp_path / "namesrv.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in enforcing.items()))
    compat = "5" if rocketmq.is_five(version) else "4.9"
    with (
        OurNameServer(tmp_path / "names", version, "-c", str(settings)) as names,
        LocalBroker(tmp_path / "m", namesrvAddr=names.address, compat=compat, **SIZES, **enforcing) as broker,
    ):
        trusting, plain, misled, late = (MqAdmin(tmp_path / who, names) for who in ("mine", "plain", "misled", "late"))
        trusting.properties = late.properties = over_tls(path)
        wrong = both_sides(tmp_path / "wrong.properties", stranger.issue("me"), stranger)
        misled.properties = over_tls(wrong)
        counters, at = (
            BrokerCounters.attach(extent.require_running(broker.store).region_directory),
            f"127.0.0.1:{broker.port}",
        )

        def count(outcome: TlsOutcome) -> int:
            return counters.fronts[0].tls_outcomes[outcome].read()

        with trusting as mqadmin:
            await_that(lambda: at in mqadmin.said("clusterList"), "the broker has registered, over TLS")
            assert "create topic to" in mqadmin.said("updateTopic", "-b", at, "-t", "made", "-r", "3", "-w", "3")
            await_that(lambda: at in mqadmin.said("topicRoute", "-t", "made"), "the name server knows the topic")
            assert count(TlsOutcome.SERVED) > 0 == count(TlsOutcome.FAILED) + count(TlsOutcome.PLAINTEXT_REFUSED)
            assert "success" in mqadmin.said("updateBrokerConfig", "-b", at, "-k", "deleteWhen", "-v", "06")
        for refused, outcome in (
            (plain, TlsOutcome.PLAINTEXT_REFUSED),
            (misled, TlsOutcome.FAILED),
            (late, TlsOutcome.FAILED),
        ):
            if refused is late:
                issued.replace(authority.issue("late", is_expired=True))
            before = count(outcome)
            with refused as mqadmin:
                assert "success" not in mqadmin.said("updateBrokerConfig", "-b", at, "-k", "deleteWhen", "-v", "5")
                await_that(lambda: count(outcome) > before, "it is counted")  # noqa: B023


@pytest.mark.interop
def test_an_unmodified_cluster_of_rocketmqs_over_tls_around_our_name_server(tmp_path: Path) -> None:
    version = "5.3.3"
    needs.need([version])
    authority = Authority(tmp_path / "ca")
    path = both_sides(tmp_path / "tls.properties", authority.issue("node"), authority)
    settings = tmp_path / "namesrv.properties"
    settings.write_text(f"tls.server.mode=enforcing\ntls.config.file={path}\n")
    with OurNameServer(tmp_path / "names", version, "-c", str(settings)) as names:
        broker = TlsBroker(tmp_path / "broker", version, namesrvAddr=names.address)
        client = RealClient(tmp_path / "client", names)
        broker.properties, client.properties = ["-Dtls.server.mode=enforcing", *over_tls(path)], over_tls(path)
        with broker, client:
            tried = itertools.count()

            def is_routed() -> str | None:
                topic = f"mine-{next(tried)}"  # what came before an error is in another one
                client.tell("produce", topic=topic, first=0, count=20)
                lines, error = client.rest()
                return topic if error is None and len(lines) == 20 else None

            topic = await_that(is_routed, "the broker has registered, and takes messages")
            await_that(lambda: consumed(client, topic) == 20, "all are in their queues, and read")


@pytest.mark.interop
def test_our_broker_registers_at_a_name_server_of_rocketmqs_that_enforces_tls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs.need(["5.3.3"])
    authority = Authority(tmp_path / "ca")
    path = both_sides(tmp_path / "tls.properties", authority.issue("node"), authority)
    names = NameServer(tmp_path / "names", "5.3.3")
    names.properties = ["-Dtls.server.mode=enforcing", f"-Dtls.config.file={path}"]
    over = {"tls.config.file": path, "useTLS": True}
    with names, LocalBroker(tmp_path / "m", namesrvAddr=names.address, compat="5", **SIZES, **over) as broker:
        asking = ["admin", "clusterList", "-n", names.address]

        def is_listed() -> bool:
            code, listed = run_command([*asking, "--tls-config", str(path)]), capsys.readouterr().out
            return code == 0 and f"127.0.0.1:{broker.port}" in listed

        await_that(is_listed, "the name server lists our broker")
        assert run_command(asking) == 3
        assert "accepts only TLS" in capsys.readouterr().err
