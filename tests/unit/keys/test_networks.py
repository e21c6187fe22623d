"""The networks that a key is kept to: their form, and whether a change gives more."""

from __future__ import annotations

import pytest

from domain.kernel.errors import ValidationFailed
from domain.keys.model import MAX_NETWORKS, are_networks_wider, check_networks


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([], ()),
        (["10.0.0.0/8", " 10.0.0.0/8 "], ("10.0.0.0/8",)),
        (["192.0.2.1"], ("192.0.2.1/32",)),
        (["2001:DB8:0::/32"], ("2001:db8::/32",)),
        (["::ffff:192.0.2.0/120"], ("192.0.2.0/24",)),
        (["::/0"], ("::/0",)),
    ],
)
def test_networks_are_kept_in_their_usual_form(given: list[str], kept: tuple[str, ...]) -> None:
    assert check_networks(given) == kept


@pytest.mark.parametrize("given", ["", "10.0.0.1/8", "10.0.0.0/33", "localhost", "fe80::1%eth0", "10", "1.2.3.4, 5.6.7.8"])
def test_what_is_no_network_is_named(given: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        check_networks(["10.0.0.0/8", given])
    assert [each.field for each in caught.value.details] == ["allowedNetworks.1"]


def test_there_are_at_most_twenty() -> None:
    check_networks([f"10.0.{number}.0/24" for number in range(MAX_NETWORKS)])
    with pytest.raises(ValidationFailed):
        check_networks([f"10.0.{number}.0/24" for number in range(MAX_NETWORKS + 1)])


@pytest.mark.parametrize(
    ("after", "before", "is_wider"),
    [
        ([], [], False),
        (["10.0.0.0/8"], [], False),
        ([], ["10.0.0.0/8"], True),
        (["10.1.0.0/16"], ["10.0.0.0/8"], False),
        (["10.0.0.0/8"], ["10.1.0.0/16"], True),
        (["10.0.0.0/8", "2001:db8::/32"], ["10.0.0.0/8"], True),
        (["2001:db8:1::/48"], ["10.0.0.0/8", "2001:db8::/32"], False),
    ],
)
def test_a_change_that_lets_in_more_is_wider(after: list[str], before: list[str], is_wider: bool) -> None:
    assert are_networks_wider(after, before) is is_wider
