"""Which role a broker has now: its file's, unless its store's file of epochs has another word for it.

`slipstream promote` and `demote`, and a newer master that was heard of, change a role without a change of its file.
"""

from __future__ import annotations

from engine.settings.config import BrokerConfig, BrokerRole
from ipc.host_port import host_port
from store.notes.epochs import Epochs

FIRST_SLAVE_ID = 1


def identity_of(config: BrokerConfig) -> str:
    """A broker as epochs name it, from its own file: a promotion does not change it."""
    return f"{config.broker_name}:{config.broker_id}"


def is_master(config: BrokerConfig, known: Epochs) -> bool:
    """Whether the broker with that file is a master now."""
    return known.makes_master(identity_of(config), is_master_by_file=config.broker_role is not BrokerRole.SLAVE)


def effective(config: BrokerConfig, known: Epochs) -> BrokerConfig:
    """The settings of the broker with that file, as its role is now."""
    is_master_by_file = config.broker_role is not BrokerRole.SLAVE
    if is_master(config, known):
        return config if is_master_by_file else config.replaced(broker_role=config.promoted_role, broker_id=0)
    master = host_port(known.master) or config.ha_master_address
    if not is_master_by_file:
        return config.replaced(ha_master_address=master)
    if master is None and known.fenced_by is not None and not config.has_name_servers:  # else they say where it is
        master = host_port(known.fenced_by.master)
    return config.replaced(broker_role=BrokerRole.SLAVE, broker_id=_free_id(known), ha_master_address=master)


def knows_master(config: BrokerConfig) -> bool:
    """Whether a slave with these settings can find a master."""
    return config.ha_master_address is not None or config.has_name_servers


def _free_id(known: Epochs) -> int:
    """The brokerId that the present master left: its own file's."""
    broker = known.fenced_by.broker if known.is_fenced and known.fenced_by else ""
    if not broker and known.entries:
        broker = known.entries[-1].broker
    number = broker.rpartition(":")[2]
    return int(number) if number.isascii() and number.isdecimal() and int(number) > 0 else FIRST_SLAVE_ID
