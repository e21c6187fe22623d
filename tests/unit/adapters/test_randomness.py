"""Generated ids: their format, and what their order tells."""

from __future__ import annotations

from adapters.randomness import RandomIdAndSecretGenerator
from domain.kernel.ids import IdPrefix, has_id_format


def test_ids_have_the_documented_format() -> None:
    ids = RandomIdAndSecretGenerator()
    assert all(has_id_format(prefix, ids.new_id(prefix)) for prefix in IdPrefix)
    assert {len(ids.random_digits(6)) for _ in range(2000)} == {6}
    assert ids.random_alphanumeric(32).isalnum()
    assert len(ids.random_bytes(32)) == 32


def test_ids_of_frequent_resources_sort_by_creation_time() -> None:
    clock = iter(1_800_000_000_000 + 7 * number for number in range(500))
    ids = RandomIdAndSecretGenerator(lambda: next(clock))
    made = [ids.new_id(IdPrefix.EXECUTION) for _ in range(500)]
    assert made == sorted(set(made))
    assert all(has_id_format(IdPrefix.EXECUTION, one) and len(one) == len("exe_") + 20 for one in made)
    assert len({one[12:] for one in made}) == 500


def test_ids_of_devices_and_keys_do_not_reveal_their_time() -> None:
    ids = RandomIdAndSecretGenerator(lambda: 1_800_000_000_000)
    for prefix in (IdPrefix.DEVICE, IdPrefix.KEY, IdPrefix.ACCOUNT, IdPrefix.GRANT):
        assert len({ids.new_id(prefix)[len(prefix) + 1 :][:3] for _ in range(300)}) > 100
